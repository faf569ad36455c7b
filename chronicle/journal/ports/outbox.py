"""The part of the port of journal stores that is about the outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import MessageId
    from chronicle.journal.records import OutboxEnvelope, OutboxMessage

__all__ = ["OutboxRecords"]


class OutboxRecords(Protocol):
    """Messages that were committed and not yet delivered."""

    def outbox(self, limit: int = 100, among: Sequence[MessageId] | None = None) -> Sequence[OutboxMessage]:
        """Return messages that were committed and not yet delivered, oldest first.

        Args:
            among: only those of these ids, at most 1,000; ``None`` for all.
        """

    def outbox_envelopes(self) -> Sequence[OutboxEnvelope]:
        """Return the envelopes of all messages in the outbox, oldest first; their bodies are not read."""

    def outbox_delivered(self, message_id: MessageId) -> None:
        """Drop a delivered message from the outbox; doing it twice is harmless."""
