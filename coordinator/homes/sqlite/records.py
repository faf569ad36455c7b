"""`SqliteHomeRecords`: the records of a home in SQLite files beside its journal."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from coordinator.documents import FileDocuments
from coordinator.homes.generation import Generation
from coordinator.homes.records import Part
from coordinator.homes.sql.receiving import receive_records
from coordinator.homes.sqlite.calls import CALLS, SqliteCallLog, SqliteCallRecords, damage_of_calls
from coordinator.homes.sqlite.collection_lease import FileCollectionLease
from coordinator.homes.sqlite.file import format_of
from coordinator.homes.sqlite.keys import KEYS, SqliteKeyRecords, damage_of_keys
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from chronicle.workspace.port import TreeRef
    from coordinator.access.quotas import Quota
    from coordinator.home import Home
    from coordinator.homes.generation import GenerationWatch
    from coordinator.homes.node_roots import NodeRoots
    from coordinator.homes.records import HomeRecords, ServiceClaim

__all__ = ["SqliteHomeRecords"]


class SqliteHomeRecords:
    """`coordinator.homes.records.HomeRecords` in files: ``access.db``, ``models.db``, and one for each document.

    Args:
        home: the home.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._keys_file = os.fspath(home.path / KEYS.name)

    def keys(self) -> SqliteKeyRecords:
        """See `HomeRecords`."""
        return SqliteKeyRecords(self._home.path, self._home.id)

    def quotas(self) -> SqliteKeyRecords | None:
        """See `HomeRecords`."""
        return self.keys() if self._has_keys() else None

    def set_quotas(self, quotas: Mapping[str, Quota]) -> None:
        """See `HomeRecords`."""
        if quotas or self._has_keys():
            with closing(self.keys()) as keys:
                keys.set_quotas(quotas)

    def calls(self) -> SqliteCallRecords:
        """See `HomeRecords`."""
        return SqliteCallRecords(self._home.path)

    def call_log(self) -> SqliteCallLog:
        """See `HomeRecords`."""
        return SqliteCallLog(self._home.path)

    def documents(self) -> FileDocuments:
        """See `HomeRecords`."""
        return FileDocuments(self._home.path)

    def service_claim(self) -> ServiceClaim:
        """See `HomeRecords`."""
        return _NoClaim()

    def generation_watch(self) -> GenerationWatch:
        """See `HomeRecords`."""
        return _OneGeneration()

    def collection_lease(self) -> FileCollectionLease:
        """See `HomeRecords`."""
        return FileCollectionLease(self._home.path)

    def node_roots(self) -> NodeRoots:
        """See `HomeRecords`."""
        return _NoOtherRoots()

    def damage(self) -> dict[str, str]:
        """See `HomeRecords`."""
        found: dict[str, str] = {}
        home = self._home
        if (home.path / "id").exists() or self._has_keys():  # else the next service makes an id
            try:
                found |= damage_of_keys(home.path, home.id)
            except HomeError as error:
                found["id"] = str(error)
        if (calls := damage_of_calls(home.path)) is not None:
            found[CALLS.name] = calls
        return found

    def parts(self) -> list[Part]:
        """See `HomeRecords`."""
        found = [(kind, format_of(self._home.path, kind)) for kind in (KEYS, CALLS)]
        return [
            Part(kind.content, str(self._home.path / kind.name), version)
            for kind, version in found
            if version is not None
        ]

    def upgrade(self, may_migrate: Callable[[], bool]) -> None:
        """Do nothing: their format is the first one."""

    def receive(self, source: HomeRecords) -> None:
        """See `HomeRecords`."""
        receive_records(self, source)

    def _has_keys(self) -> bool:
        return os.path.exists(self._keys_file)  # noqa: PTH110  for each message, and pathlib's takes long


class _NoOtherRoots:
    """The published roots of a home of one directory, whose layers a collection reads itself."""

    def publish(self, refs: Collection[TreeRef], damage: str = "") -> None:
        """Do nothing."""

    def of_others(self) -> list[TreeRef]:
        """Return nothing."""
        return []


class _OneGeneration:
    """The generation of a home in files."""

    def check(self) -> Generation:
        """Return the first one."""
        return Generation()


class _NoClaim:
    """The claim on a home of one directory, whose lock the service holds."""

    def hold(self) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""
