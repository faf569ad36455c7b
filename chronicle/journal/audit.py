"""The view of a session's records that :mod:`chronicle.journal.verify` reads; each store has one of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId
    from chronicle.journal.records import Branch, CatalogueEntry, Session

__all__ = ["EventRow", "SessionAudit"]

EventRow: TypeAlias = (
    "tuple[int, str, str, int, int, str | None, str | None, str | None, bytes | None, bytes | None, bytes]"
)
"""An event as stored: ``seq, event_id, type, turn, ts, correlation_id, causation_id, payload_ref,
payload_sha256, payload, hash``. The hashes are 32 bytes; ``payload_sha256`` may be ``None`` if the payload is inline. A
damaged store may return other types."""


class SessionAudit(Protocol):
    """A consistent view of all records of a session, for verification.

    It is read from the tables, not from a cache, and leaves nothing out, not even rows that should not exist.
    """

    @property
    def session(self) -> Session:
        """The session."""

    @property
    def catalogue(self) -> Sequence[CatalogueEntry]:
        """The catalogue's entries, by number."""

    @property
    def catalogue_head(self) -> tuple[int, str]:
        """The number and hash of the catalogue's last entry, as the session's record holds them."""

    @property
    def branches(self) -> Sequence[Branch]:
        """The session's branches."""

    def branch(self, branch_id: BranchId) -> Branch | None:
        """Return a branch, of this session or another one, that a fork may continue."""

    def base_hash(self, branch_id: BranchId) -> str:
        """Return the hash before a branch's first own event, as its record holds it."""

    def rows(self, branch_id: BranchId) -> Iterator[EventRow]:
        """Yield a branch's own events by seq, including rows after its head.

        Raises:
            Corrupt: a row cannot be read.
        """
