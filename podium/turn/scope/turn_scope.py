"""The scope of a turn: collects events and outgoing messages while the hook runs, and sends frames to the client.

A scope belongs to one message or hook. A message that steers a running turn gets a scope of its own that collects into
the same turn (`TurnScope.steered`).
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, BinaryIO, cast

from chronicle.canonical import encode
from chronicle.errors import WrongType
from chronicle.journal.records import Draft, OutboxMessage, SetReminder
from podium.agent.reply import Reply
from podium.artifacts.artifacts import artifact_frame, artifact_payload
from podium.artifacts.names import check_media_type, check_name, media_type_of
from podium.errors import ContextMisuse, PodiumError, UnknownAgentType
from podium.events import ARTIFACT_ADDED, ASSISTANT_MESSAGE, MESSAGE_ANSWERED, USER_MESSAGE
from podium.messages.headers import Headers
from podium.state.plain_json import plain_json, sent_json
from podium.turn.journal.commit import user_message
from podium.turn.ports import ModelCall
from podium.turn.scope.collected import YIELD_INTERVAL_S, Collected
from podium.turn.scope.questions import Question
from podium.turn.steps.calling import check_call
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from chronicle.canonical import Json, JsonObject
    from chronicle.clock import Clock
    from chronicle.ids import EventId, IdSource
    from chronicle.journal.records import DropReminder, InboxMessage, Reminder
    from chronicle.workspace.port import Iteration, Workspace
    from podium.address import Address
    from podium.agent.retry import Retry
    from podium.artifacts.writing import ArtifactWriter
    from podium.blocking import BlockingRunner
    from podium.models.port import LLMMessage, LLMStreamChunk
    from podium.models.quality import QualityOfService
    from podium.turn.ports import Asker, Models
    from podium.turn.steps.effects import RunningStep
    from podium.turn.steps.turn_steps import TurnSteps
    from podium.turn.stream import Frame

__all__ = ["TurnScope"]


async def no_reminders() -> Sequence[Reminder]:
    """Return no reminders."""
    return ()


class TurnScope:
    """What an `AgentContext` forwards to.

    Args:
        turn: the number that the turn gets when it commits.
        message: the message being handled; ``None`` in hooks other than ``on_message`` and ``on_steer``.
        publish: sends a frame to the client.
        workspace: for history; ``None`` without one.
        artifacts: stores the contents of artifacts.
        run_blocking: makes the workspace's blocking calls.
        known_types: returns the agent types that messages may be sent to; ``None`` for any.
        stored_reminders: reads the agent's reminders as the last commit left them.
    """

    def __init__(
        self,
        turn: int,
        message: InboxMessage | None,
        publish: Callable[[Frame], None],
        workspace: Workspace | None,
        clock: Clock,
        ids: IdSource,
        artifacts: ArtifactWriter,
        run_blocking: BlockingRunner = asyncio.to_thread,
        known_types: Callable[[], Collection[str] | None] = lambda: None,
        stored_reminders: Callable[[], Awaitable[Sequence[Reminder]]] = no_reminders,
    ) -> None:
        self.turn = turn
        self._message = message
        self._publish = publish
        self._workspace = workspace
        self._clock = clock
        self._ids = ids
        self._run_blocking = run_blocking
        self._replies_begun = 0
        self._step_prefix = ""
        self._known_types = known_types
        self._stored_reminders = stored_reminders
        self._collected = Collected(artifacts)

    def steered(self, message: InboxMessage, publish: Callable[[Frame], None], event_id: EventId) -> TurnScope:
        """Return a scope of the same turn for a message that steers it, and record the message as an event."""
        self._check_open()
        collected = self._collected
        scope = TurnScope(
            self.turn,
            message,
            publish,
            self._workspace,
            self._clock,
            self._ids,
            collected.artifacts,
            self._run_blocking,
            self._known_types,
            self._stored_reminders,
        )
        scope._collected = collected
        scope._step_prefix = f"{message.message_id}:"
        scope.record_message(message, event_id)
        return scope

    def open_steps(
        self, steps: TurnSteps, address: Address, asker: Asker | None, models: Models | None, deadline_ms: int
    ) -> None:
        """Set the steps of the turn of an agent, how it asks other agents and models, and its deadline."""
        self._collected.steps = steps
        self._collected.address = address
        self._collected.asker = asker
        self._collected.models = models
        self._collected.deadline_ms = deadline_ms

    async def ask(self, sender: Address, receiver: Address, message: JsonObject, timeout_s: float | None) -> Json:
        """Ask another agent as a step of the turn, and return its answer; see `AgentContext.ask`."""
        self._check_open()
        self._check_known(receiver)
        collected, cause = self._collected, self._message
        if cause is None:
            raise ContextMisuse("this hook handles no message, so it asks nobody; ask in on_message")
        if collected.asker is None:
            raise PodiumError("no service runs other agents here, so nobody can answer")
        asker, clock, ids = collected.asker, self._clock, self._ids
        question = Question(sender, receiver, message, cause, collected.deadline_ms, timeout_s)

        async def answer(_receiver: str, _message: Json) -> Json:
            step = current_step()
            assert step is not None, "it is the function of a step"
            assert step.span is not None, "it runs"
            step.span.rename(f"step ask {receiver.agent_type}")
            return await question.answer(asker, clock, ids, step.key, step.span.traceparent or self.traceparent)

        return await self.step(f"ask {receiver.name}", answer, (receiver.name, message), None)

    async def call_model(
        self,
        profile: str,
        messages: Sequence[LLMMessage],
        tools: Sequence[JsonObject] | None,
        temperature: float | None,
        max_output_tokens: int | None,
        qos: QualityOfService | None,
    ) -> AsyncGenerator[LLMStreamChunk, None]:
        """Call a model as a step of the turn, and yield what it says; see `AgentContext.llm`."""
        from podium.models.quality import QualityOfService  # noqa: PLC0415  for agents that call models only
        from podium.turn.scope.model_calls import call_model  # noqa: PLC0415

        self._check_open()
        collected = self._collected
        if collected.steps is None or collected.address is None:
            raise ContextMisuse("this hook handles no message, so it calls no model; call it in on_message")
        if collected.models is None:
            raise PodiumError("nothing calls models here; a test gives them: AgentHarness(..., models=...)")
        call = ModelCall(
            collected.address,
            self.turn,
            profile,
            messages,
            tools,
            temperature,
            max_output_tokens,
            qos or QualityOfService(),
            self.traceparent,
        )
        async with aclosing(call_model(collected.steps, collected.models, call, self._step_prefix)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def step(
        self, name: str, function: Callable[..., object], arguments: Sequence[object], retry: Retry | None
    ) -> Json:
        """Run a step of the turn; see `AgentContext.step`."""
        self._check_open()
        check_call(name, function, retry)
        steps = self._collected.steps
        if steps is None:
            raise ContextMisuse("this hook handles no message, so it has no steps; begin steps in on_message")
        return await steps.run(name, function, arguments, retry, sink=self, prefix=self._step_prefix)

    @property
    def message_id(self) -> str | None:
        """The id of the message being handled."""
        return self._message.message_id if self._message else None

    @property
    def step_key(self) -> str:
        """The key of the step whose function is the calling code, as a prefix; empty outside of steps."""
        step = current_step()
        return f"{step.key}:" if step is not None else ""

    @property
    def sender(self) -> str | None:
        """The address of the agent that sent the message; ``None`` for a client's, or without a message."""
        return self._message.sender if self._message else None

    @property
    def outbox(self) -> Sequence[OutboxMessage]:
        """The messages that the turn sends to other agents."""
        return self._collected.outbox

    @property
    def traceparent(self) -> str | None:
        """The ``traceparent`` of the turn's span; ``None`` if nothing is traced. The runner sets it."""
        return self._collected.traceparent

    @traceparent.setter
    def traceparent(self, value: str | None) -> None:
        self._collected.traceparent = value

    @property
    def tokens(self) -> int:
        """Pieces of text that the turn has streamed."""
        return self._collected.tokens

    @property
    def changed_reminders(self) -> Sequence[SetReminder | DropReminder]:
        """The reminders that the turn sets and drops."""
        return tuple(self._collected.reminders.values())

    @property
    def results(self) -> Mapping[str, Json]:
        """The results of the turn's messages, by message id; a message without a result is absent."""
        return {key: cast("JsonObject", draft.payload)["data"] for key, draft in self._collected.results.items()}

    def new_reply(self) -> Reply:
        """Return a new reply of this turn."""
        self._check_open()
        self._replies_begun += 1
        reply = Reply(self, self._ids.other("rpl_", self._clock.now_ms()), self._replies_begun)
        self._collected.replies.append(reply)
        return reply

    async def begin_reply(self) -> Reply:
        """Begin a reply, and tell the client."""
        reply = self.new_reply()
        await self.publish({"type": "message_start", "reply_id": reply.reply_id, "ordinal": reply.ordinal})
        return reply

    def reply_of(self, ordinal: int) -> Reply | None:
        """Return a reply to this scope's message, by its ordinal; ``None`` if there is none."""
        return next((reply for reply in self._own_replies() if reply.ordinal == ordinal), None)

    def _own_replies(self) -> Iterator[Reply]:
        return (reply for reply in self._collected.replies if reply.sink is self)

    def record(self, event_type: str, payload: JsonObject) -> None:
        """Add an event to the turn.

        Raises:
            PodiumError: the turn is over.
        """
        self._check_open()
        self._collected.drafts.append(self._draft(event_type, payload))

    def record_message(self, message: InboxMessage, event_id: EventId) -> None:
        """Add the message being handled to the turn, under the event id that its ``turn_start`` frame announced."""
        self._check_open()
        self._collected.drafts.append(self._draft(USER_MESSAGE, user_message(message), event_id))

    async def add_artifact(self, name: str, data: bytes | str | Path, media_type: str | None) -> str:
        """Add an artifact to the turn, send its frame, and return its id; see `AgentContext.add_artifact`."""
        self._check_open()
        step = current_step()
        if step is not None:
            raise ContextMisuse(
                f"an artifact cannot be added inside of step {step.key!r}; add it after the step, from its result or "
                "from a file of the workspace"
            )
        check_name(name)
        if media_type is None:
            media_type = media_type_of(name, text=isinstance(data, str))
        check_media_type(media_type)
        content = await self._run_blocking(self._collected.artifacts.take, name, data)
        self._check_open()
        event_id = self._ids.event(self._clock.now_ms())
        payload = artifact_payload(event_id, name, media_type, content)
        self._collected.drafts.append(self._draft(ARTIFACT_ADDED, payload, event_id))
        frame = artifact_frame(payload)
        await self.publish(frame)
        return str(frame["artifact_id"])

    def set_result(self, value: object) -> None:
        """Set the result of this scope's message; see `AgentContext.reply`."""
        self._check_open()
        if self.message_id is None:
            raise ContextMisuse("this hook handles no message, so there is nothing to reply to; reply in on_message")
        data = plain_json(value)
        self._collected.results[self.message_id] = self._draft(MESSAGE_ANSWERED, {"data": data})
        step = current_step()
        if step is not None:
            step.note_result(data)

    def tell(self, sender: Address, receiver: Address, message: JsonObject) -> str:
        """Add a message to another agent of the same tenant to the turn, and return its id.

        Raises:
            InvalidInput: the message is not JSON.
            UnknownAgentType: no class of the receiver's type is known.
            PodiumError: the turn is over.
        """
        self._check_open()
        self._check_known(receiver)
        now_ms = self._clock.now_ms()
        message_id = self._ids.message(now_ms)
        self._collected.outbox.append(
            OutboxMessage(
                message_id,
                receiver.name,
                encode(message),
                now_ms,
                str(sender),
                sender.tenant,
                Headers(trace=self.traceparent).to_json(),
            )
        )
        step = current_step()
        if step is not None:
            step.note_tell(receiver, message)
        return message_id

    def now_ms(self) -> int:
        """Return the time, in epoch milliseconds."""
        return self._clock.now_ms()

    def since_ms(self) -> int:
        """Return when the message being handled was admitted, or the time if that is earlier, or without a message."""
        now_ms = self.now_ms()
        return min(now_ms, self._message.admitted_ms) if self._message is not None else now_ms

    def change_reminder(self, change: SetReminder | DropReminder) -> None:
        """Add a change of a reminder to the turn; it replaces an earlier one of the same name.

        Raises:
            PodiumError: the turn is over, or a step runs.
        """
        self._check_open()
        if current_step() is not None:
            raise ContextMisuse(
                "a step cannot change reminders, as it is not run again: do it before or after ctx.step"
            )
        self._collected.reminders.pop(change.name, None)
        self._collected.reminders[change.name] = change

    async def reminders(self) -> Sequence[Reminder | SetReminder]:
        """Return the agent's reminders by name, as the turn leaves them.

        Raises:
            PodiumError: the turn is over.
        """
        self._check_open()
        found: dict[str, Reminder | SetReminder] = {each.name: each for each in await self._stored_reminders()}
        for name, change in self._collected.reminders.items():
            if isinstance(change, SetReminder):
                found[name] = change
            else:
                found.pop(name, None)
        return [found[name] for name in sorted(found)]

    async def publish(self, frame: Frame) -> None:
        """Send a frame to the client, and yield to the event loop from time to time so that it goes out.

        The first piece of text goes out at once.

        Raises:
            PodiumError: the turn is over.
        """
        self._check_open()
        collected = self._collected
        is_first = False
        if frame["type"] == "message_update":
            is_first = not collected.tokens
            collected.tokens += 1
        step = current_step()
        if step is not None and "reply_id" in frame:
            self._note_reply(step, frame)
        self._publish(frame)
        now_s = asyncio.get_running_loop().time()
        if is_first or now_s >= collected.yield_s:
            await asyncio.sleep(0)  # the delivery takes the frames,
            await asyncio.sleep(0)  # and they are sent
            collected.yield_s = asyncio.get_running_loop().time() + YIELD_INTERVAL_S

    def _note_reply(self, step: RunningStep, frame: Frame) -> None:
        """Note a frame of a reply that the function of a step writes."""
        ordinal = next(reply.ordinal for reply in self._own_replies() if reply.reply_id == frame["reply_id"])
        step.note_text(
            ordinal, frame.get("delta", ""), begun=frame["type"] == "message_start", end=frame["type"] == "message_end"
        )

    async def emit(self, name: str, data: JsonObject) -> None:
        """Send an agent-defined event to the client."""
        if not isinstance(name, str):
            raise WrongType(f"emit takes the name of an event, a text, not {type(name).__name__}")
        name, plain = cast("str", sent_json(name, "emit")), sent_json(data, "emit")
        await self.publish({"type": "event", "name": name, "data": plain})

    async def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations."""
        _check_path(path)
        return await self._run_blocking(self._files().history, path)

    async def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path at an iteration."""
        _check_path(path)
        return await self._run_blocking(self._files().at, path, iteration)

    async def finish(self) -> Sequence[Draft]:
        """Finish the open replies, close the turn's scopes and return its events."""
        for reply in self._collected.replies:
            await reply.finish()
        self._collected.drafts.extend(self._collected.results.values())
        self._collected.close()
        return self._collected.drafts

    async def keep_artifacts(self) -> None:
        """Make the contents of the turn's artifacts durable; call it after `finish`.

        Raises:
            Unavailable: the blob store could not be reached.
        """
        if any(draft.type == ARTIFACT_ADDED for draft in self._collected.drafts):
            await self._run_blocking(self._collected.artifacts.keep)

    def abandon(self) -> Sequence[Draft]:
        """Close the turn's scopes, and return this scope's message and its replies, unfinished ones last.

        They are for the record of a cancelled turn, which keeps nothing else of it.
        """
        collected = self._collected
        collected.close()
        said = [
            draft
            for draft in collected.drafts
            if draft.type in {USER_MESSAGE, ASSISTANT_MESSAGE} and draft.correlation_id == self.message_id
        ]
        unfinished = [reply for reply in collected.replies if reply.sink is self and not reply.finished and reply.text]
        said.extend(self._draft(ASSISTANT_MESSAGE, {**reply.record, "partial": True}) for reply in unfinished)
        return said

    def _draft(self, event_type: str, payload: JsonObject, event_id: EventId | None = None) -> Draft:
        now_ms = self._clock.now_ms()
        return Draft(
            event_id or self._ids.event(now_ms),
            event_type,
            payload,
            self.turn,
            now_ms,
            self.message_id,
            self.message_id,
        )

    def _files(self) -> Workspace:
        self._check_open()
        if self._workspace is None:
            raise ContextMisuse("this agent runs without a workspace")
        return self._workspace

    def _check_known(self, receiver: Address) -> None:
        known = self._known_types()
        if known is not None and receiver.agent_type not in known:
            raise UnknownAgentType(receiver.agent_type, tuple(sorted(known)))

    def _check_open(self) -> None:
        if self._collected.over:
            raise ContextMisuse(
                f"turn {self.turn} is over: a context works only inside its hook; "
                "await what you start before the hook returns"
            )


def _check_path(path: object) -> None:
    if not isinstance(path, str):
        raise WrongType(f"a path of the workspace is a text such as 'notes/today.txt', not {type(path).__name__}")
