"""What becomes of a message whose agent is busy with another one: the sender's choice.

The message is admitted first, durably, whatever the choice; so a host that dies loses none, and the message is then
handled in its place like any other. docs/internals/turn.md has the order of events of each choice.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from chronicle.errors import InboxFull
from podium.errors import AgentBusy

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import NewMessage, Receipt, Session

__all__ = ["BusyPolicy", "admit_message"]


class BusyPolicy(StrEnum):
    """What a sender asks for when the agent is busy; all are ``ENQUEUE`` when it is not."""

    ENQUEUE = "enqueue"
    """Wait for the messages before it."""
    REJECT = "reject"
    """Do not take it: `AgentBusy` if any message waits or is being handled. Nothing is stored."""
    INTERRUPT = "interrupt"
    """Cancel the running turn, then handle it. State and files go back to the turn before; the cancelled message and
    what was said until then stay in the transcript."""
    ROLLBACK = "rollback"
    """Cancel the running turn as if its message had not been sent, then handle it. Nothing of it is in the
    transcript."""
    STEER = "steer"
    """Hand it to the running turn's ``on_steer``. It is consumed by that turn's commit; if the turn ends without
    having taken it, it waits like any other."""


def admit_message(
    store: JournalStore,
    session: Session,
    message: NewMessage,
    when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
    limit: int = 1000,
) -> Receipt:
    """Give a message its place in an agent's inbox, durably, if its sender's choice allows it.

    A repeat of an idempotency key returns the first receipt, whatever the agent is doing.

    Args:
        limit: messages that may wait.

    Raises:
        AgentBusy: a message waits or is being handled, and this one is not to be taken then. Nothing was stored.
        InboxFull: ``limit`` messages wait.
        IdempotencyConflict: the key was used with another body.
    """
    if when_busy is not BusyPolicy.REJECT:
        return store.admit(session.session_id, message, limit)
    try:
        return store.admit(session.session_id, message, 1)  # what is being handled is pending until it is committed
    except InboxFull as error:
        raise AgentBusy(
            f"{session.name} is busy, and the message was not to wait; send it again later, or without 'reject'"
        ) from error
