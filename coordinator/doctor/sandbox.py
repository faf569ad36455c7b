"""Which sandboxes commands can run in on this machine, found by running one in each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from coordinator.doctor.finding import failed, good, warning
from podium.sandbox.probe import probe, probe_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coordinator.doctor.finding import Finding
    from podium.sandbox.policy import Rung

__all__ = ["examine_sandboxes"]

_COVERS: Final = {
    "none": "limits of time, memory, processes, output and disk; keeps no files, network or processes from a command",
    "landlock": "files, network and signals, without a privilege",
    "bubblewrap": "files, network and processes, by namespaces",
}


def examine_sandboxes() -> Iterator[tuple[str, Finding]]:
    """Yield the name and the finding of each sandbox, the weakest first, and of the proxy.

    That none confines a command is a failure.
    """
    found, proxy = asyncio.run(_probed())
    confines = any(why_not is None for name, why_not in found.items() if name != "none")
    for name, why_not in found.items():
        if why_not is None:
            yield name, good(f"works: {_COVERS[name]}")
        elif confines and name != "none":
            yield name, warning(f"does not work here: {why_not}", "")
        else:
            yield name, failed(f"does not work here: {why_not}")
    if proxy is None:
        yield "proxy", good("works: a network of listed hosts only, in bubblewrap")
    else:
        yield "proxy", warning(f"does not work here: {proxy}", "")


async def _probed() -> tuple[Mapping[Rung, str | None], str | None]:
    return await probe(), await probe_proxy()
