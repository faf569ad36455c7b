"""The part of the port of journal stores that is about steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import StoredStep

__all__ = ["StepRecords"]


class StepRecords(Protocol):
    """Results of parts of the handling of pending messages."""

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store the result of a part of the handling of a pending message, durably.

        Args:
            epoch: of the writer's lease, as in a `Commit`.

        Raises:
            StaleEpoch: the epoch is not the one in force.
            NotFound: the message is not pending in this session.
            Conflict: the message has a step of that number.
            Unavailable: it is unknown whether the step was stored; `steps` tells.
        """

    def steps(self, message_id: MessageId) -> Sequence[StoredStep]:
        """Return the steps of a message, by number."""

    def steps_of_session(self, session_id: SessionId) -> Sequence[StoredStep]:
        """Return the steps of all messages of a session, by the position of the message, then number."""

    def drop_steps(self, message_id: MessageId) -> None:
        """Drop the steps of a message, so that its next attempt begins anew; doing it twice is harmless."""
