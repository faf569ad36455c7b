"""Verification's view of a session in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId
    from chronicle.journal.audit import EventRow
    from chronicle.journal.records import Branch, CatalogueEntry, Event, Session

__all__ = ["MemoryAudit"]


@dataclass(slots=True)
class MemoryAudit:
    """A copy of a session's records."""

    session: Session
    catalogue: Sequence[CatalogueEntry]
    all_branches: dict[BranchId, tuple[Branch, str, list[Event]]] = field(default_factory=dict)

    @property
    def catalogue_head(self) -> tuple[int, str]:
        """The number and hash of the catalogue's last entry."""
        return self.catalogue[-1].number, self.catalogue[-1].hash

    @property
    def branches(self) -> Sequence[Branch]:
        """The session's branches."""
        return [branch for branch, _, _ in self.all_branches.values() if branch.session_id == self.session.session_id]

    def branch(self, branch_id: BranchId) -> Branch | None:
        """Return a branch of any session."""
        found = self.all_branches.get(branch_id)
        return found[0] if found else None

    def base_hash(self, branch_id: BranchId) -> str:
        """Return the hash before a branch's first own event."""
        return self.all_branches[branch_id][1]

    def rows(self, branch_id: BranchId) -> Iterator[EventRow]:
        """Yield a branch's own events by seq."""
        for event in self.all_branches[branch_id][2]:
            yield (
                event.seq,
                event.event_id,
                event.type,
                event.turn,
                event.ts,
                event.correlation_id,
                event.causation_id,
                event.payload_ref,
                bytes.fromhex(event.payload_sha256),
                event.payload,
                bytes.fromhex(event.hash.partition(":")[2]),
            )
