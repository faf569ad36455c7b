"""Messages of a hook to other agents, which are sent by the turn's commit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from chronicle.canonical import encode
from chronicle.journal.records import OutboxMessage
from podium.durations import seconds_of
from podium.messages.headers import Headers
from podium.reminders.delayed import DelayedMessage
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from datetime import timedelta

    from chronicle.canonical import JsonObject
    from podium.address import Address
    from podium.turn.scope.open_turn import RunningHook

__all__ = ["Outbox"]


class Outbox:
    """The outgoing messages of one hook."""

    def __init__(self, hook: RunningHook) -> None:
        self._hook = hook
        self._turn = hook.turn

    def tell(self, receiver: Address, message: JsonObject, due_ms: int | None = None) -> str:
        """Add a message to another agent of the same tenant to the turn, and return its id.

        Args:
            due_ms: when it is sent, epoch milliseconds; ``None`` for at once.

        Raises:
            InvalidInput: the message is not JSON.
            UnknownAgentType: no class of the receiver's type is known.
            PodiumError: the turn is over.
        """
        turn = self._turn
        turn.check_open()
        turn.check_known(receiver)
        now_ms = turn.env.clock.now_ms()
        message_id = turn.env.ids.message(now_ms)
        trace, caller = turn.traceparent, self._hook.sent_caller
        if due_ms is None:
            headers = Headers(trace=trace, caller=caller).to_json()
            sender, tenant = str(turn.address), turn.address.tenant
            turn.outbox.append(
                OutboxMessage(message_id, receiver.name, encode(message), now_ms, sender, tenant, headers)
            )
        else:
            turn.delayed.append(DelayedMessage(message_id, receiver.name, message, due_ms, caller, trace))
        step = current_step()
        if step is not None:
            step.note_tell(receiver, message, due_ms)
        return message_id

    def tell_after(self, receiver: Address, message: JsonObject, after: timedelta | float | str) -> str:
        """Add a message that is sent after a time; otherwise as `tell`.

        Raises:
            InvalidInput: the time cannot be used, or the message is not JSON.
        """
        after_ms = math.ceil(seconds_of(after, "the delay of a message") * 1000)
        return self.tell(receiver, message, self._turn.env.clock.now_ms() + after_ms)
