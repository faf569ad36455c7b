"""Messages of a hook to other agents, which are sent by the turn's commit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from chronicle.canonical import encode
from chronicle.errors import InvalidInput, WrongType
from chronicle.ids import MessageId
from chronicle.journal.records import OutboxMessage
from podium.answer_message import ANSWER_PREFIX, AnswerMessage
from podium.durations import seconds_of
from podium.errors import ContextMisuse
from podium.messages.headers import Headers
from podium.reminders.delayed import DelayedMessage
from podium.turn.scope.pauses import check_promise_name
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from datetime import timedelta

    from chronicle.canonical import Json, JsonObject
    from podium.address import Address
    from podium.turn.scope.open_turn import RunningHook

__all__ = ["Outbox"]

_LONGEST_REJECTION: Final = 2_000


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

    def answer(self, receiver: Address, run_id: str, promise: str, value: Json, rejection: str | None = None) -> None:
        """Add an answer to a promise of another agent of the same tenant to the turn; see `AgentContext.resolve`.

        Args:
            rejection: why the promise is rejected, in place of the value.

        Raises:
            InvalidInput: an argument cannot be used.
            UnknownAgentType: no class of the receiver's type is known.
            PodiumError: the turn is over, or a step runs.
        """
        turn = self._turn
        turn.check_open()
        turn.check_known(receiver)
        check_promise_name(promise)
        if type(run_id) is not str:
            raise WrongType(f"the id of a run is a text, not {type(run_id).__name__}")
        if rejection is not None and (type(rejection) is not str or len(rejection) > _LONGEST_REJECTION):
            raise InvalidInput(f"a promise is rejected with a text of at most {_LONGEST_REJECTION} characters")
        if current_step() is not None:
            raise ContextMisuse("a step cannot answer a promise, as it is not run again: do it outside of ctx.step")
        now_ms, sender = turn.env.clock.now_ms(), str(turn.address)
        answer_id = MessageId(turn.env.ids.other(ANSWER_PREFIX, now_ms))
        body = AnswerMessage(run_id, promise, value, rejection).to_body()
        headers = Headers(trace=turn.traceparent, caller=self._hook.sent_caller).to_json()
        turn.outbox.append(OutboxMessage(answer_id, receiver.name, body, now_ms, sender, turn.address.tenant, headers))

    def tell_after(self, receiver: Address, message: JsonObject, after: timedelta | float | str) -> str:
        """Add a message that is sent after a time; otherwise as `tell`.

        Raises:
            InvalidInput: the time cannot be used, or the message is not JSON.
        """
        after_ms = math.ceil(seconds_of(after, "the delay of a message") * 1000)
        return self.tell(receiver, message, self._turn.env.clock.now_ms() + after_ms)
