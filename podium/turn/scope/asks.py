"""Questions to other agents: their headers, their deadlines, and what the frames of the receiver's turn say."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from chronicle.canonical import encode
from chronicle.errors import NotFound
from chronicle.journal.records import NewMessage
from podium.agent.answer import Answer, Answered
from podium.agent.handlers import check_way
from podium.errors import AskCycle, AskFailed, AskTimeout, ContextMisuse, PodiumError, ReadFailed, ReadOnly
from podium.messages.headers import AskHeader, Headers, ask_in, question_key
from podium.tasks import BackgroundTasks, joined_beside
from podium.turn.answer_parts import AnswerReader, is_answer, is_event, part_of
from podium.turn.steps.calling import StepCall
from podium.turn.steps.effects import current_step
from podium.turn.steps.kinds import StreamStep
from podium.turn.stream import MAX_EVENT_BYTES, TERMINAL_FRAMES, Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import MessageId
    from chronicle.journal.records import InboxMessage
    from podium.address import Address
    from podium.agent.answer import AnswerPart
    from podium.agent.handler_specs import HandlerSpec
    from podium.caller import Caller
    from podium.turn.ports import Asker, Environment
    from podium.turn.scope.open_turn import RunningHook
    from podium.turn.scope.steps import Steps
    from podium.turn.steps.effects import RunningStep
    from podium.turn.stream import Frame

__all__ = ["Asks", "Question", "time_left_s"]


class Asks:
    """The questions of one hook to other agents."""

    def __init__(self, hook: RunningHook, steps: Steps) -> None:
        self._hook = hook
        self._steps = steps

    async def call(self, receiver: Address, spec: HandlerSpec, argument: object, timeout_s: float | None) -> Any:
        """Ask another agent by one of its handlers, and return the result.

        Raises:
            InvalidMessage: the argument does not fit; nothing was sent.
            AskFailed: as `ask`, or the result is not of its type.
        """
        message = spec.message(argument)
        if spec.read_only:
            return _typed(receiver, spec, await self._read(receiver, message, timeout_s))
        answer = cast("dict[str, Any]", await self.ask(receiver, message, timeout_s))
        return _typed(receiver, spec, answer["data"])

    async def ask(self, receiver: Address, message: JsonObject, timeout_s: float | None) -> Json:
        """Ask another agent as a step of the turn, and return its answer; see `AgentContext.ask`."""
        question, env = self._question(receiver, message, timeout_s)

        async def answer(_receiver: str, _message: Json) -> Json:
            step = current_step()
            assert step is not None, "it is the function of a step"
            return await question.answer(env, step.key, self._trace_of(step, receiver))

        answer_json: Json = await self._steps.run(StepCall(f"ask {receiver.name}", answer, (receiver.name, message)))
        return answer_json

    async def _read(self, receiver: Address, message: JsonObject, timeout_s: float | None) -> Json:
        """Call a read-only handler of another agent as a step of the turn."""
        turn = self._hook.turn
        turn.check_open()
        turn.check_known(receiver)
        env = turn.env
        if env.read is None:
            raise PodiumError("no service runs other agents here, so nobody can answer")
        reader = env.read

        async def answer(_receiver: str, _message: Json) -> Json:
            try:
                await env.run_store(env.store.session, receiver.name, receiver.tenant)
                async with asyncio.timeout(timeout_s) as limit:
                    return await reader(receiver, message)
            except NotFound as error:
                raise AskFailed(f"there is no agent {receiver.name} to read") from error
            except TimeoutError as error:
                text = f"{receiver} did not answer within {timeout_s:g} s" if limit.expired() else str(error)
                raise AskTimeout(text) from error
            except (ReadFailed, ReadOnly) as error:
                raise AskFailed(f"{receiver} failed at the question: {type(error).__name__}: {error}") from error

        result: Json = await self._steps.run(StepCall(f"read {receiver.name}", answer, (receiver.name, message)))
        return result

    async def call_stream(
        self, receiver: Address, spec: HandlerSpec, argument: object, timeout_s: float | None
    ) -> AsyncGenerator[AnswerPart[Any], None]:
        """Ask another agent by one of its handlers, and yield the parts of the answer; raises as `call`."""
        check_way(spec.name, message_is_read=False, handler_reads=spec.read_only)
        async with aclosing(self.stream(receiver, spec.message(argument), timeout_s)) as parts:
            async for part in parts:
                if isinstance(part, Answered):
                    yield Answered(part.answer, _typed(receiver, spec, part.answer.data))
                else:
                    yield part

    async def stream(
        self, receiver: Address, message: JsonObject, timeout_s: float | None
    ) -> AsyncGenerator[AnswerPart[Any], None]:
        """Ask another agent as a step of the turn, and yield the parts of its answer; see `Asking.stream`."""
        question, env = self._question(receiver, message, timeout_s)
        turn = self._hook.turn
        if turn.steps is None:
            raise ContextMisuse("this hook handles no message, so it has no steps; begin steps in on_message")

        def parts(step: RunningStep) -> AsyncGenerator[Json, None]:
            return question.parts(env, step.key, lambda: self._trace_of(step, receiver))

        arguments = (receiver.name, message, "stream")  # else a program could replay what it asked in the other form
        step = StreamStep(f"ask {receiver.name}", parts, arguments, is_answer, has_span=True)
        async with aclosing(turn.steps.stream(step, self._hook.step_prefix)) as recorded:
            async for part in recorded:
                if is_answer(part):
                    answer = Answer(**cast("dict[str, Any]", part)["answer"])
                    yield Answered(answer, answer.data)
                else:
                    yield part_of(part)

    def _question(
        self, receiver: Address, message: JsonObject, timeout_s: float | None
    ) -> tuple[Question, Environment]:
        turn, cause = self._hook.turn, self._hook.message
        turn.check_open()
        turn.check_known(receiver)
        if cause is None:
            raise ContextMisuse("this hook handles no message, so it asks nobody; ask in on_message")
        if turn.env.asker is None:
            raise PodiumError("no service runs other agents here, so nobody can answer")
        asker, caller = turn.env.asker, self._hook.sent_caller
        question = Question(turn.address, receiver, message, cause, caller, turn.deadline_ms, timeout_s, asker)
        return question, turn.env

    def _trace_of(self, step: RunningStep, receiver: Address) -> str | None:
        """Name the span of a step, and return its ``traceparent``, or that of the turn if steps have none."""
        assert step.span is not None, "it runs"
        step.span.rename(f"step ask {receiver.agent_type}")
        return step.span.traceparent or self._hook.turn.traceparent


class Question:
    """A question of a turn to another agent.

    Args:
        cause: the message that the turn handles.
        caller: who asks the receiver, through the sender.
        deadline_ms: the deadline of the turn.
        timeout_s: how long the asker waits; ``None`` for the turn's deadline alone.
        asker: sends it.

    Raises:
        AskCycle: the receiver is the asker itself, or waits for the answer of the turn.
    """

    def __init__(
        self,
        sender: Address,
        receiver: Address,
        body: JsonObject,
        cause: InboxMessage,
        caller: Caller,
        deadline_ms: int,
        timeout_s: float | None,
        asker: Asker,
    ) -> None:
        asked = ask_in(cause.headers)
        path = (*(asked.path if asked is not None else ()), str(sender))
        if str(receiver) in path:
            loop = " -> ".join((*path[path.index(str(receiver)) :], str(receiver)))
            raise AskCycle(
                f"{loop}: {receiver} waits for this turn, so it cannot answer; use ctx.tell, or ask another one"
            )
        self._sender = sender
        self._receiver = receiver
        self._body = body
        self._cause = cause
        self._caller = caller
        self._deadline_ms = deadline_ms if asked is None else min(deadline_ms, asked.deadline_ms)
        self._timeout_s = timeout_s
        self._asker = asker
        self._header = AskHeader(path, 0)

    async def answer(self, env: Environment, step_key: str, trace: str | None) -> Json:
        """Send the question, and return the answer as an object.

        Args:
            env: of the asker.
            trace: the ``traceparent`` of the step; of the sender's span, if steps have none.

        Raises:
            AskFailed: the receiver failed at it, or it was cancelled.
            AskTimeout: no answer came in time.
        """
        return _answer(self._receiver, *await self._outcome(env, step_key, trace))

    async def parts(
        self, env: Environment, step_key: str, trace: Callable[[], str | None]
    ) -> AsyncGenerator[Json, None]:
        """Send the question, and yield the parts of the answer as they come; otherwise as `answer`."""
        heard, reader, reading = Subscription(), AnswerReader(), BackgroundTasks()
        event_bytes = 0

        def read(message_id: MessageId) -> None:
            if env.frames is not None and not len(reading):
                reading.spawn(_hear(env.frames(self._receiver, message_id), heard), "read an answer")

        async def ask() -> tuple[str, Sequence[Frame]]:
            try:
                message_id, frames = await self._outcome(env, step_key, trace(), read)
            except Exception as error:
                heard.fail(error)
                raise
            for frame in frames:
                heard.push(frame)
            return message_id, frames

        try:
            async with joined_beside(ask(), f"ask {self._receiver}") as asking, aclosing(heard.batches()) as batches:
                async for batch in batches:
                    for part in chain.from_iterable(map(reader.parts, batch)):
                        event_bytes += len(encode(part)) if is_event(part) else 0
                        if not is_event(part) or event_bytes <= MAX_EVENT_BYTES:  # it is recorded
                            yield part
                yield {"answer": _answer(self._receiver, *await asking)}
        finally:
            await reading.close()

    async def _outcome(
        self,
        env: Environment,
        step_key: str,
        trace: str | None,
        admitted: Callable[[MessageId], None] = lambda _: None,
    ) -> tuple[str, Sequence[Frame]]:
        """Send the question, and return its id with its frames once it is settled."""
        now_ms = env.clock.now_ms()
        deadline_ms = self._deadline_ms
        if self._timeout_s is not None:
            deadline_ms = min(deadline_ms, now_ms + int(self._timeout_s * 1000))
        question = NewMessage(
            env.ids.message(now_ms),
            encode(self._body),
            now_ms,
            question_key(self._cause.message_id, step_key),
            str(self._sender),
            headers=Headers(
                ask=replace(self._header, deadline_ms=deadline_ms), trace=trace, caller=self._caller
            ).to_json(),
        )
        limit_s = max(0.0, (deadline_ms - now_ms) / 1000)
        circle: list[str] = []
        try:
            async with asyncio.timeout(limit_s) as limit:
                return await self._asker.ask(self._sender, self._receiver, question, circle.extend, admitted)
        except TimeoutError:
            if not limit.expired():
                raise
            why = f", as they waited for each other in turns of their own: {' -> '.join(circle)}" if circle else ""
            raise AskTimeout(f"{self._receiver} did not answer within {limit_s:g} s{why}") from None


def time_left_s(message: InboxMessage, limit_s: float, now_ms: int) -> float:
    """Return the time limit of the turn of a message: its asker's deadline counts, too. 0 or less if that is over."""
    asked = ask_in(message.headers)
    return limit_s if asked is None else min(limit_s, (asked.deadline_ms - now_ms) / 1000)


async def _hear(frames: AsyncGenerator[Sequence[Frame], None], heard: Subscription) -> None:
    """Add the frames of a turn that goes on: what it ends with, the journal says."""
    async with aclosing(frames):
        async for batch in frames:
            for frame in batch:
                if frame["type"] not in TERMINAL_FRAMES:
                    heard.push(frame)


def _typed(receiver: Address, spec: HandlerSpec, data: Json) -> Any:
    try:
        return spec.typed_result(data)
    except ValidationError as error:
        raise AskFailed(f"{receiver} runs with another class: its result does not fit: {error}") from error


def _answer(receiver: Address, message_id: str, frames: Sequence[Frame]) -> Json:
    last = frames[-1]
    if last["type"] == "error":
        error = last["error"]
        kept = "; the message is parked there and can be retried" if last.get("parked") else ""
        raise AskFailed(f"{receiver} failed at the question: {error['type']}: {error['message']}{kept}")
    text = ""
    for frame in frames:
        if frame["type"] == "turn_start":
            text = ""
        elif frame["type"] == "message_end":
            text += frame["text"]
    answer: dict[str, Any] = {
        "agent": receiver.name,
        "message_id": message_id,
        "turn": last["turn"],
        "text": text,
        "data": last.get("data"),
    }
    return cast("Json", answer)
