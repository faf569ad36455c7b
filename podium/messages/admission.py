"""Admission of messages: the durable write that gives a message its place in an agent's inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InboxFull
from podium.address import label
from podium.errors import AgentBusy
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import NewMessage, Receipt, Session

__all__ = ["admit_message"]


def admit_message(
    store: JournalStore,
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
    if when_busy is not BusyPolicy.REJECT:
        return store.admit(session.session_id, message, limit)
    try:
        return store.admit(session.session_id, message, 1)  # the message being handled is pending until its commit
    except InboxFull as error:
        raise AgentBusy(
            f"{label(session)} is busy, and the message was not to wait; send it again later, or without 'reject'"
        ) from error
