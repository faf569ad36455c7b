"""Busy policies: the sender's choice for a message that arrives while the agent handles another one.

The message is admitted first, durably, whatever the policy; so a host that dies loses none, and the message is then
handled in its place like any other. docs/internals/turn.md has the order of events of each policy.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.journal.records import InboxMessage

__all__ = ["BusyPolicy", "may_preempt"]


class BusyPolicy(StrEnum):
    """Policies for a message and the running turn when the agent is busy; all mean ``ENQUEUE`` when it is not."""

    ENQUEUE = "enqueue"
    """Wait for the messages before it."""
    REJECT = "reject"
    """Refuse the message: `AgentBusy` if any message waits or is being handled. Nothing is stored."""
    INTERRUPT = "interrupt"
    """Cancel the running turn, then handle the message. State and files go back to the turn before; the cancelled
    message and what was said until then stay in the transcript."""
    ROLLBACK = "rollback"
    """Cancel the running turn as if its message had not been sent, then handle the message. The transcript keeps
    nothing of that turn."""
    STEER = "steer"
    """Hand the message to the running turn's ``on_steer``. It is consumed by that turn's commit; if the turn ends
    without having taken it, it waits like any other."""


def may_preempt(message: InboxMessage, running: InboxMessage) -> bool:
    """Return whether a message may preempt the turn of another one: it waits, and was admitted later.

    A repeat of a message that is settled preempts nothing. Nothing preempts ``on_failed``: nobody would send it again.
    """
    from chronicle.journal.records import MessageStatus  # noqa: PLC0415  slow to import, and commands name policies only
    from podium.messages.headers import failed_in  # noqa: PLC0415  likewise

    is_later = message.status is MessageStatus.PENDING and running.position < message.position
    return is_later and failed_in(running.headers) is None
