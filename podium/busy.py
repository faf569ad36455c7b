"""What becomes of a message whose agent is busy with another one: the sender's choice.

The message is admitted first, durably, whatever the choice; so a host that dies loses none, and the message is then
handled in its place like any other. docs/internals/turn.md has the order of events of each choice.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["BusyPolicy"]


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
