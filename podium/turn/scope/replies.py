"""Output of a hook to the client: replies, frames, agent-defined events, and the result of its message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from chronicle.errors import WrongType
from podium.agent.reply import Reply
from podium.errors import ContextMisuse
from podium.events import ASSISTANT_MESSAGE, MESSAGE_ANSWERED, MODEL_CALLED, USER_MESSAGE
from podium.state.plain_json import plain_json, sent_json
from podium.turn.scope.open_turn import YIELD_INTERVAL_S
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.journal.records import Draft
    from podium.turn.scope.open_turn import RunningHook
    from podium.turn.steps.effects import RunningStep
    from podium.turn.stream import Frame

__all__ = ["Replies"]


class Replies:
    """The replies of one hook. It is the `podium.agent.reply.ReplySink` of each."""

    def __init__(self, hook: RunningHook) -> None:
        self._hook = hook
        self._turn = hook.turn
        self._begun = 0

    async def begin(self) -> Reply:
        """Begin a reply, and tell the client."""
        self._turn.check_open()
        env = self._turn.env
        self._begun += 1
        reply = Reply(self, env.ids.other("rpl_", env.clock.now_ms()), self._begun)
        self._turn.replies.append(reply)
        await self.publish({"type": "message_start", "reply_id": reply.reply_id, "ordinal": reply.ordinal})
        return reply

    def by_ordinal(self, ordinal: int) -> Reply | None:
        """Return a reply to the hook's message, by its ordinal; ``None`` if there is none."""
        return next((reply for reply in self._own() if reply.ordinal == ordinal), None)

    def record(self, event_type: str, payload: JsonObject) -> None:
        """Add an event to the turn; see `RunningHook.record`."""
        self._hook.record(event_type, payload)

    def set_result(self, value: object) -> None:
        """Set the result of the hook's message; see `AgentContext.reply`."""
        self._turn.check_open()
        message_id = self._hook.message_id
        if message_id is None:
            raise ContextMisuse("this hook handles no message, so there is nothing to reply to; reply in on_message")
        data = plain_json(value)
        self._turn.result_drafts[message_id] = self._hook.draft(MESSAGE_ANSWERED, {"data": data})
        step = current_step()
        if step is not None:
            step.note_result(data)

    async def emit(self, name: str, data: JsonObject) -> None:
        """Send an agent-defined event to the client."""
        if not isinstance(name, str):
            raise WrongType(f"emit takes the name of an event, a text, not {type(name).__name__}")
        name, plain = cast("str", sent_json(name, "emit")), sent_json(data, "emit")
        await self.publish({"type": "event", "name": name, "data": plain})

    async def publish(self, frame: Frame) -> None:
        """Send a frame to the client, and yield to the event loop from time to time so that it goes out.

        The first piece of text goes out at once.

        Raises:
            PodiumError: the turn is over.
        """
        turn = self._turn
        turn.check_open()
        is_first = False
        if frame["type"] == "message_update":
            is_first = not turn.tokens
            turn.tokens += 1
        step = current_step()
        if step is not None and "reply_id" in frame:
            self._note(step, frame)
        self._hook.send(frame)
        now_s = asyncio.get_running_loop().time()
        if is_first or now_s >= turn.yield_s:
            await asyncio.sleep(0)  # the delivery takes the frames,
            await asyncio.sleep(0)  # and they are sent
            turn.yield_s = asyncio.get_running_loop().time() + YIELD_INTERVAL_S

    def so_far(self) -> Sequence[Draft]:
        """Return the events of a cancelled turn: message, replies, unfinished ones last, and all calls of models."""
        recorded = [
            draft
            for draft in self._turn.drafts
            if draft.type == MODEL_CALLED  # those of `on_steer`, too: later calls name them
            or (draft.type in {USER_MESSAGE, ASSISTANT_MESSAGE} and draft.correlation_id == self._hook.message_id)
        ]
        unfinished = [reply for reply in self._own() if not reply.finished and reply.text]
        partial = [self._hook.draft(ASSISTANT_MESSAGE, {**reply.record, "partial": True}) for reply in unfinished]
        return recorded + partial

    def _own(self) -> Iterator[Reply]:
        return (reply for reply in self._turn.replies if reply.sink is self)

    def _note(self, step: RunningStep, frame: Frame) -> None:
        """Note a frame of a reply that the function of a step writes."""
        ordinal = next(reply.ordinal for reply in self._own() if reply.reply_id == frame["reply_id"])
        step.note_text(
            ordinal, frame.get("delta", ""), begun=frame["type"] == "message_start", end=frame["type"] == "message_end"
        )
