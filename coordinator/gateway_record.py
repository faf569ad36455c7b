"""Which gateway serves a home: its lock, and the file that says where. It imports no web framework.

The lock is the file ``gateway`` in the home, held while the gateway lives. The record is ``gateway.json`` in the
run directory, with the process and the URL; it is removed with that directory, and written again for the next service.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from chronicle.system.atomic_files import replacing
from chronicle.system.locks import is_locked, try_lock, unlock
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coordinator.home import Home

__all__ = [
    "GatewayRecord",
    "GatewayRuns",
    "check_no_gateway",
    "gateway_lock",
    "gateway_runs",
    "read_record",
    "remove_record",
    "write_record",
]


class GatewayRuns(PodiumError):
    """Another gateway serves the home.

    Attributes:
        url: its URL; ``None`` while it starts.
    """

    def __init__(self, home: str, url: str | None) -> None:
        state = f"is served already, at {url}" if url else "has a gateway already, which is starting"
        super().__init__(f"the home {home} {state}; podium down ends it")
        self.home = home
        self.url = url


@dataclass(frozen=True, slots=True)
class GatewayRecord:
    """Where the gateway of a home is."""

    pid: int
    url: str


@contextmanager
def gateway_lock(home: Home) -> Iterator[None]:
    """Hold the lock of the home's gateway while the context lasts; the kernel releases it when this process dies.

    Raises:
        GatewayRuns: another process holds it.
    """
    with _lock_path(home).open("a") as file:
        if not try_lock(file.fileno()):
            raise _runs(home)
        remove_record(home)  # of a gateway that was killed
        try:
            yield
        finally:
            remove_record(home)
            unlock(file.fileno())


def check_no_gateway(home: Home) -> None:
    """Check that no gateway of the home lives now, without the lock.

    Raises:
        GatewayRuns: one does.
    """
    if gateway_runs(home):
        raise _runs(home)


def gateway_runs(home: Home) -> bool:
    """Whether a gateway of the home lives."""
    try:
        with _lock_path(home).open("r") as file:
            return is_locked(file.fileno())
    except FileNotFoundError:
        return False


def write_record(home: Home, record: GatewayRecord) -> None:
    """Write the record of this process's gateway, the holder of the lock; the home's service runs."""
    with replacing(_record_path(home)) as new:
        new.write_text(json.dumps(asdict(record)), encoding="utf-8")


def read_record(home: Home) -> GatewayRecord | None:
    """Return the record of the home's gateway; ``None`` if there is none, or none yet."""
    with suppress(OSError, ValueError, TypeError):
        return GatewayRecord(**json.loads(_record_path(home).read_bytes()))
    return None


def remove_record(home: Home) -> None:
    """Remove the record, if there is one."""
    _record_path(home).unlink(missing_ok=True)


def _runs(home: Home) -> GatewayRuns:
    record = read_record(home)
    return GatewayRuns(str(home.path), record.url if record is not None else None)


def _lock_path(home: Home) -> Path:
    return home.path / "gateway"


def _record_path(home: Home) -> Path:
    return home.run_dir / "gateway.json"
