"""Restores of a simulated cluster's database: it has the state of a backup again, and is on another timeline.

What goes back are the journal, the record of the generation, and the oracle's model. What others know stays as it is:
hosts, services, the coordinator, the layers of nodes, the trees, and the file of a machine.
"""

from __future__ import annotations

import sqlite3
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.journal.postgres.position import ServerPosition
from coordinator.homes.generation import Generation
from coordinator.homes.postgres import gone_back
from coordinator.homes.postgres.gone_back import Known

if TYPE_CHECKING:
    from chronicle.ids import MessageId
    from tests.stateful.cluster.world import ClusterWorld

__all__ = ["Backup", "Restores"]

_SYSTEM: Final = 1


@dataclass(frozen=True, slots=True)
class Backup:
    """A state of the database."""

    rows: sqlite3.Connection
    model: Any
    sent: frozenset[MessageId]
    record: Known | None
    flushed: int


class Restores:
    """The database of a run as it goes back, and the watch on it that a machine has."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._position = ServerPosition(_SYSTEM, 1, 0)
        self._record: Known | None = None
        """In the database."""
        self._node: Known | None = None
        self._seen: ServerPosition | None = None
        self.count = 0

    def check(self) -> Generation:
        """See `coordinator.homes.generation.GenerationWatch`."""
        now = self._position = self._at(self._position.timeline, self._position.flushed + 1)
        why = gone_back.why_gone_back(now, self._record, self._node, self._seen)
        if self._record is None or why is not None:
            known = [each.generation.number for each in (self._record, self._node) if each is not None]
            self._record = Known(Generation(max(known, default=0) + 1, self._world.clock.now_ms(), why), now)
        self._node, self._seen = self._record, now
        return self._record.generation

    def back_up(self) -> Backup:
        """Return the state of the database."""
        rows, oracle = sqlite3.connect(":memory:"), self._world.oracle
        self._connection.backup(rows)
        return Backup(rows, deepcopy(oracle.lines), frozenset(oracle.sent), self._record, self._position.flushed)

    def restore(self, backup: Backup) -> None:
        """Give the database the state of a backup, which is not to be used again."""
        world = self._world
        world.note("database", "is restored")
        self.count += 1
        backup.rows.backup(self._connection)
        backup.rows.close()
        self._record, self._position = backup.record, self._at(1 + self.count, backup.flushed)
        world.oracle.lines = backup.model
        world.oracle.unsent.update(world.oracle.sent.keys() - backup.sent)

    @property
    def _connection(self) -> sqlite3.Connection:
        return cast("sqlite3.Connection", cast("Any", self._world.store)._db._connection)

    @staticmethod
    def _at(timeline: int, flushed: int) -> ServerPosition:
        return ServerPosition(_SYSTEM, timeline, flushed)
