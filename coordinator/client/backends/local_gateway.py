"""The key for a gateway of this user on this machine: the local key of the home that it serves."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from chronicle.errors import ChronicleError
from coordinator.access.local_key import read_local_key
from coordinator.gateway_record import gateway_runs, read_record
from coordinator.home import Home
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["key_for_local_gateway"]


def key_for_local_gateway(url: str, homes: Iterable[Path]) -> str:
    """Return the local key of the home whose gateway serves a URL; empty if it is none of these homes'.

    The URL must be the one that ``podium up`` shows, up to case and a slash at its end: a key is sent to no other
    address, where a program of another user may listen. So it is not that of a gateway that has ended.

    Args:
        homes: directories that may be homes.
    """
    for path in homes:
        with suppress(ChronicleError, HomeError, OSError):
            home = Home(path).open()
            record = read_record(home)
            if record is not None and _plain(record.url) == _plain(url) and gateway_runs(home):
                return read_local_key(home.path) or ""
    return ""


def _plain(url: str) -> str:
    return url.rstrip("/").lower()
