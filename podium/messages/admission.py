"""Admission of messages: the durable write that gives a message its place in an agent's inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InboxFull
from podium.address import label
from podium.errors import AgentBusy
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from chronicle.journal.ports.inbox import InboxRecords
    from chronicle.journal.records import NewMessage, Receipt, Session

__all__ = ["admit_message", "limit_of", "refusal"]


def admit_message(
    store: InboxRecords,
    session: Session,
    message: NewMessage,
    when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
    limit: int = 1000,
) -> Receipt:
    """Admit a message to an agent's inbox, durably, if the sender's busy policy allows it.

    A repeat of an idempotency key returns the first receipt, whatever the agent's state.

    Args:
        limit: the most messages that may wait.

    Raises:
        AgentBusy: the policy is ``REJECT``, and a message waits or is being handled. Nothing was stored.
        InboxFull: ``limit`` messages wait.
        IdempotencyConflict: the key was used with another body.
    """
    try:
        return store.admit(session.session_id, message, limit_of(when_busy, limit))
    except InboxFull as error:
        raise refusal(session, when_busy, error) from error


def limit_of(when_busy: BusyPolicy, limit: int) -> int:
    """Return the most messages that may wait for one of this policy to be admitted."""
    return 1 if when_busy is BusyPolicy.REJECT else limit  # the message being handled is pending until its commit


def refusal(session: Session, when_busy: BusyPolicy, error: Exception) -> Exception:
    """Return the error of a message that the journal did not admit under `limit_of`."""
    if when_busy is BusyPolicy.REJECT and isinstance(error, InboxFull):
        return AgentBusy(
            f"{label(session)} is busy, and the message was not to wait; send it again later, or without 'reject'"
        )
    return error
