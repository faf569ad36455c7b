"""The quotas that a gateway has stored in a home, for the process that admits messages."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError
from chronicle.ids import IdSource
from coordinator.access.key_store import FILE, KeyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coordinator.access.quotas import Quota

__all__ = ["LatestQuotas", "StoredQuotas", "store_quotas"]

_log: Final = structlog.stdlib.get_logger("coordinator.access.quotas")


class StoredQuotas:
    """The quotas of a home as they are now. Safe to share between threads.

    Args:
        home: the home's directory. It is not changed: without a file of keys there are no quotas.
        home_id: its id.
    """

    def __init__(self, home: Path, home_id: str) -> None:
        self._home = home
        self._home_id = home_id
        self._file = os.fspath(home / FILE)
        self._guard = threading.Lock()
        self._keys: KeyStore | None = None
        self._changes = -1
        self._quotas: Mapping[str, Quota] = {}

    def __call__(self) -> Mapping[str, Quota]:
        """Return the quotas by tenant."""
        with self._guard:
            if self._keys is None:
                if not os.path.exists(self._file):  # noqa: PTH110  a call for each message, and pathlib's takes long
                    return {}
                self._keys = KeyStore(self._home, self._home_id, IdSource())
            changes = self._keys.changes()
            if changes != self._changes:
                self._quotas, self._changes = self._keys.quotas(), changes
            return self._quotas

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            if self._keys is not None:
                self._keys.close()
                self._keys = None


class LatestQuotas:
    """Quotas as they were last read: for a process that has to go on while they cannot be read.

    Args:
        read: reads them.
    """

    def __init__(self, read: Callable[[], Mapping[str, Quota]]) -> None:
        self._read = read
        self._quotas: Mapping[str, Quota] = {}
        self._problem: str | None = None

    def __call__(self) -> Mapping[str, Quota]:
        """Return the quotas by tenant; safe to call from any thread."""
        try:
            self._quotas, self._problem = self._read(), None
        except ChronicleError as error:
            if str(error) != self._problem:
                _log.warning("quotas_not_read", error=str(error))
            self._problem = str(error)
        return self._quotas


def store_quotas(home: Path, home_id: str, quotas: Mapping[str, Quota]) -> None:
    """Replace the quotas of a home; they are in force at once."""
    if not quotas and not (home / FILE).exists():
        return
    keys = KeyStore(home, home_id, IdSource())
    try:
        keys.set_quotas(quotas)
    finally:
        keys.close()
