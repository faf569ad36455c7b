"""Which rungs work here, found by running a command on each: that a program is installed, or a kernel new, says little.

A container without user namespaces, AppArmor, or a filter of system calls can each keep a rung from working.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from podium.errors import CommandNotStarted, SandboxRefused
from podium.sandbox.bubblewrap import bubblewrap
from podium.sandbox.egress.allow_list import Proxied
from podium.sandbox.kernel import LANDLOCK_ABI, landlock_abi
from podium.sandbox.on_rung import run_on
from podium.sandbox.policy import RUNGS, Limits, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from podium.sandbox.on_rung import Stream
    from podium.sandbox.policy import Network, Rung

__all__ = ["best_rung", "known_rung", "probe", "probe_proxy"]

_COMMAND: Final = ("/bin/sh", "-c", ": > /dev/null")
_LIMITS: Final = Limits(time_s=30.0)
_found: dict[Rung, str | None] = {}
"""What the first probe of this process has found."""


async def probe() -> Mapping[Rung, str | None]:
    """Run a command on each rung once in this process; return why a rung does not work, ``None`` for one that does."""
    for rung in RUNGS:
        if rung not in _found:
            _found[rung] = await _why_not(rung)
    return _found


def known_rung() -> Rung | None:
    """Return the strongest rung that works here; ``None`` while this process has not looked."""
    return next((rung for rung in reversed(RUNGS) if rung in _found and _found[rung] is None), None)


async def probe_proxy() -> str | None:
    """Run a command whose network is a list of hosts; return why that does not work, ``None`` if it does."""
    if (await probe())["bubblewrap"] is not None:
        return "it needs bubblewrap, whose network has no other way out"
    return await _why_not("bubblewrap", Proxied(allow=("example.org",)))


async def best_rung(policy: Policy) -> Rung:
    """Return the strongest rung that works here.

    Raises:
        SandboxRefused: what works is weaker than what the policy asks for.
    """
    found = await probe()
    enough = RUNGS[RUNGS.index(policy.needs) :]
    for rung in reversed(enough):
        if found[rung] is None:
            return rung
    reasons = ", and ".join(f"{rung} does not work here: {found[rung]}" for rung in enough)
    raise SandboxRefused(
        f"the command asks for the sandbox {policy.needs} or a stronger one, and nothing was run: {reasons}"
    )


async def _why_not(rung: Rung, network: Network = "none") -> str | None:
    missing = _missing(rung)
    if missing is not None:
        return missing
    said = bytearray()

    async def listen(_: Stream, piece: bytes) -> None:
        said.extend(piece)

    try:
        policy = Policy(limits=_LIMITS, at_least="none", network=network)
        ended = await run_on(rung, _COMMAND, policy, on_output=listen)
    except (CommandNotStarted, SandboxRefused, OSError) as error:
        return str(error)
    if ended.status == 0:
        return None
    reason = said.decode(errors="replace").strip() or f"a command ended with status {ended.status}"
    return f"{reason} {_HINTS[rung]}"


def _missing(rung: Rung) -> str | None:
    if sys.platform != "linux":
        return "it is for Linux"
    if rung == "landlock" and (abi := landlock_abi()) < LANDLOCK_ABI:
        what = f"has version {abi} of Landlock" if abi else "has no Landlock, or a filter of system calls refuses it"
        return f"the kernel {what}, and version {LANDLOCK_ABI} is needed (Linux 6.12, here is {os.uname().release})"
    if rung == "bubblewrap" and bubblewrap() is None:
        return "bwrap is not installed (apt-get install bubblewrap)"
    return None


_HINTS: Final[Mapping[Rung, str]] = {
    "none": "",
    "landlock": "(a container's filter of system calls may refuse landlock_restrict_self or seccomp)",
    "bubblewrap": (
        "(it needs user namespaces: in Docker a seccomp profile that allows unshare, mount and pivot_root; "
        "on Kubernetes also hostUsers: false; on Ubuntu the AppArmor profile of bwrap)"
    ),
}
