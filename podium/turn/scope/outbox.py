"""Messages of a hook to other agents, which are sent by the turn's commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.canonical import encode
from chronicle.journal.records import OutboxMessage
from podium.messages.headers import Headers
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject
    from podium.address import Address
    from podium.turn.scope.open_turn import RunningHook

__all__ = ["Outbox"]


class Outbox:
    """The outgoing messages of one hook."""

    def __init__(self, hook: RunningHook) -> None:
        self._hook = hook
        self._turn = hook.turn

    def tell(self, receiver: Address, message: JsonObject) -> str:
        """Add a message to another agent of the same tenant to the turn, and return its id.

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
        turn.outbox.append(
            OutboxMessage(
                message_id,
                receiver.name,
                encode(message),
                now_ms,
                str(turn.address),
                turn.address.tenant,
                Headers(trace=turn.traceparent, caller=self._hook.sent_caller).to_json(),
            )
        )
        step = current_step()
        if step is not None:
            step.note_tell(receiver, message)
        return message_id
