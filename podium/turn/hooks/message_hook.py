"""Which method handles a message.

It is ``on_reminder`` for those of reminders, ``on_failed`` for those about a parked message, and a handler or
``on_message`` for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.agent.handler_specs import call_for
from podium.messages.headers import reminder_in
from podium.reminders.reminder import Reminder
from podium.reminders.times import from_ms
from podium.turn.journal.commit import body_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.journal.records import InboxMessage
    from podium.agent.base import BaseAgent
    from podium.agent.context import AgentContext

__all__ = ["MessageHook", "hook_for"]


@dataclass(frozen=True, slots=True)
class MessageHook:
    """The hook for one message."""

    name: str
    run: Callable[[AgentContext[Any]], Awaitable[None]]


def hook_for(agent: BaseAgent, message: InboxMessage, parked: InboxMessage | None) -> MessageHook:
    """Return the hook of an agent that handles a message.

    Args:
        parked: the parked message that it is about; ``None`` if it is about none.
    """
    body = body_of(message)
    if parked is not None:
        failed = body_of(parked)
        return MessageHook("on_failed", lambda ctx: agent.on_failed(ctx, failed, body["error"]))
    header = reminder_in(message.headers)
    if header is None:
        return MessageHook(*call_for(agent, body))
    reminder = Reminder(header.name, from_ms(header.due_ms), body, header.missed)
    return MessageHook("on_reminder", lambda ctx: agent.on_reminder(ctx, reminder))
