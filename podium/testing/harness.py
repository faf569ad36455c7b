"""`AgentHarness`: runs an agent in the test's own process, in milliseconds, by the turn code of production.

Journal and blobs are in memory by default; the workspace is a real directory in the plain-directory presentation; time
is a `ManualClock` that the test advances. ::

    async with AgentHarness(Counter) as agent:
        answer = await agent.send({"text": "hi"})
        assert answer.text == "That was message 1."
        await agent.kill()
        assert agent.state["count"] == 1
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.canonical import encode
from chronicle.clock import ManualClock
from chronicle.ids import IdSource, MessageId
from chronicle.journal.committer import DirectCommitter
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.payloads import payload_of
from chronicle.journal.records import NewMessage, Receipt
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec, Opened
from podium.address import DEFAULT_TENANT, Address
from podium.agent.agent_types import agent_type_of
from podium.agent.base import workspace_quota_of
from podium.agent_record import read_agent
from podium.artifacts.artifacts import find_artifact, list_artifacts, read_artifact
from podium.blocking import at_once
from podium.errors import AgentAsleep, PodiumError
from podium.messages.admission import admit_message
from podium.messages.answers import Answer, answer_run
from podium.messages.asking import StoreAsker
from podium.messages.courier import deliver_outbox
from podium.messages.headers import Headers
from podium.reminders.expiries import of_program
from podium.reminders.firing import NotFired, fire_reminder
from podium.reminders.plans import scheduled
from podium.settings import read_workspace_variable, set_workspace_variable
from podium.state.plain_json import plain_json
from podium.testing.models import ProvidedModels
from podium.turn.activation import Activation, Step
from podium.turn.busy import BusyPolicy
from podium.turn.ports import Environment, WorkspaceRequest
from podium.turn.telemetry import NO_METER, NO_TRACER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event
    from chronicle.workspace.port import Workspace
    from podium.agent.base import BaseAgent
    from podium.artifacts.artifacts import Artifact
    from podium.caller import Caller
    from podium.models.port import LLMProvider
    from podium.reminders.reminder import ScheduledReminder
    from podium.turn.stream import Frame, Subscription
    from podium.turn.telemetry import Meter, Tracer

__all__ = ["AgentHarness", "Exchange", "HarnessOptions"]

_LEASE_MS = 60_000
_LOOK_S = 0.01
"""Interval of looks whether an agent that was asked is awake."""
_AWAKE: WeakKeyDictionary[JournalStore, WeakValueDictionary[Address, Activation]] = WeakKeyDictionary()
"""The agents that are awake in harnesses, by their stores."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One message and what came back."""

    receipt: Receipt
    frames: Sequence[Frame]

    @property
    def text(self) -> str:
        """The agent's replies in the last attempt, concatenated."""
        text = ""
        for frame in self.frames:
            if frame["type"] == "turn_start":
                text = ""
            elif frame["type"] == "message_end":
                text += frame["text"]
        return text

    @property
    def data(self) -> Json:
        """The result that the agent set by ``ctx.reply``; ``None`` without one."""
        return cast("Json", self.frames[-1].get("data")) if self.ok else None

    @property
    def ok(self) -> bool:
        """Whether its turn was committed."""
        return bool(self.frames and self.frames[-1]["type"] == "turn_end")

    @property
    def paused(self) -> bool:
        """Whether its turn has paused; ``frames`` end with what it waits for."""
        return bool(self.frames and self.frames[-1]["type"] == "turn_paused")

    @property
    def error(self) -> JsonObject | None:
        """``{"type", "message"}`` of the error that parked or cancelled the message."""
        last = self.frames[-1] if self.frames else {}
        return cast("JsonObject", last["error"]) if last.get("type") == "error" else None

    @property
    def patch(self) -> list[JsonObject]:
        """The state's change, RFC 6902; empty unless the turn was committed."""
        return cast("list[JsonObject]", self.frames[-1]["patch"]) if self.ok else []


@dataclass(frozen=True, slots=True)
class HarnessOptions:
    """Options of an `AgentHarness` that few tests need."""

    directory: Path | None = None
    """For its workspace; a temporary one by default."""
    ids: IdSource = field(default_factory=IdSource)
    """One with a seeded generator gives the same ids in each run."""
    known_types: Collection[str] | None = None
    """The agent types of its project, which `AgentContext.tell` accepts; any by default."""
    meter: Meter = NO_METER
    """Takes the measurements of its turns."""
    tracer: Tracer = NO_TRACER
    """Opens their spans."""


class AgentHarness:
    """One agent under test. Use it as an async context manager.

    ``$AGENT_WORKSPACE`` is a variable of the test's process: it is set to the agent's workspace before its hooks run,
    and restored at the end. Agents whose hooks run concurrently all see the value of the one that started last.

    Args:
        agent_class: the class under test.
        key: the second part of its address.
        store, blobs: the journal and the blob store; in memory by default. Harnesses may share them.
        clock: advanced by `advance`.
        config: its configuration, `AgentContext.config`; `configure` changes it.
        tenant: the agent's.
        models: what answers ``ctx.llm``: a provider for each profile, such as a `podium.models.scripted` one.
        options: what few tests need.
    """

    def __init__(
        self,
        agent_class: type[BaseAgent],
        key: str = "test",
        *,
        store: JournalStore | None = None,
        blobs: BlobStore | None = None,
        clock: ManualClock | None = None,
        config: Mapping[str, Json] | None = None,
        tenant: str = DEFAULT_TENANT,
        models: Mapping[str, LLMProvider] | None = None,
        options: HarnessOptions | None = None,
    ) -> None:
        self._class = agent_class
        self._options = options = options or HarnessOptions()
        self._ids = options.ids
        self._config = _checked(config or {})
        self.models = ProvidedModels(models or {})
        """Provider behind ``ctx.llm``; its ``calls`` are those that were made."""
        self._holder = self._ids.other("harness_", 0)
        self._directory: AbstractContextManager[str] = (
            nullcontext(str(options.directory))
            if options.directory
            else tempfile.TemporaryDirectory(prefix="podium-harness-")
        )
        self._layers = Path()
        self._activation: Activation | None = None
        self._handling = asyncio.Lock()
        self._root: Path | None = None
        """The workspace's directory, once it was opened."""
        self._variable_before = read_workspace_variable()
        self.address = Address(agent_type_of(agent_class), key, tenant)
        self.store: JournalStore = store or MemoryJournalStore()
        self.blobs: BlobStore = blobs or MemoryBlobStore()
        self.clock = clock or ManualClock()

    async def __aenter__(self) -> Self:
        self._layers = Path(self._directory.__enter__())
        now_ms = self.clock.now_ms()
        self._variable_before = read_workspace_variable()
        try:
            self.store.ensure_session(
                self.address.name, self._ids.session(now_ms), self._ids.branch(now_ms), now_ms, self.address.tenant
            )
            await self._wake(unclean=False)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._activation is not None:
            await self.sleep()
        self._leave()

    def _leave(self) -> None:
        """Remove the directory, and restore the process's environment."""
        set_workspace_variable(self._variable_before)
        self._directory.__exit__(None, None, None)

    # -- talking to it --------------------------------------------------------------------------------------------

    def admit(
        self,
        message: dict[str, Any] | str,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
        trace: str | None = None,
        caller: Caller | None = None,
    ) -> Receipt:
        """Admit a message to the agent's inbox without handling it; a string means ``{"text": ...}``.

        Args:
            trace: the ``traceparent`` of what sends it.
            caller: who asks; by default somebody without a key.

        Raises:
            AgentBusy: the policy is ``REJECT``, and the agent is busy.
        """
        body = {"text": message} if isinstance(message, str) else message
        now_ms = self.clock.now_ms()
        session = self.store.session(self.address.name, self.address.tenant)
        new = NewMessage(
            self._ids.message(now_ms),
            encode(cast("Json", body)),
            now_ms,
            idempotency_key,
            headers=Headers(trace=trace, caller=caller).to_json(),
        )
        return admit_message(self.store, session, new, when_busy)

    async def send(
        self,
        message: dict[str, Any] | str,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
        trace: str | None = None,
        caller: Caller | None = None,
    ) -> Exchange:
        """Admit a message, and handle pending messages in order until it is settled; wakes a sleeping agent.

        Messages may be sent concurrently, each from a task of its own.

        Raises:
            AgentBusy: the policy is ``REJECT``, and the agent is busy.
        """
        receipt = self.admit(message, idempotency_key, when_busy, trace, caller)
        if self._activation is None:
            await self._wake(unclean=False)
        if receipt.repeated and (settled := await self.activation.settled(receipt.message_id)):
            return Exchange(receipt, settled)
        return Exchange(receipt, await self._frames_of(receipt.message_id, when_busy))

    async def read(self, message: dict[str, Any]) -> Json:
        """Call a read-only handler, and return its result as JSON; wakes a sleeping agent. A turn may run meanwhile.

        Args:
            message: ``{"handler": NAME, "input": {...}}``.

        Raises:
            InvalidMessage: it does not fit, or names no read-only handler.
            ReadOnly, ReadFailed: the handler failed.
        """
        if self._activation is None:
            await self._wake(unclean=False)
        return (await self.activation.read(message)).data

    async def receive(self) -> int:
        """Deliver messages between the agents of its store, and handle all pending messages of this one, in order.

        Returns:
            the number of settled messages: committed, or parked after their last attempt.
        """
        deliver_outbox(self.store, self._ids, self.clock.now_ms())
        if self._activation is None:
            await self._wake(unclean=False)
        handled = 0
        async with self._handling:
            self._set_variable()
            while (step := await self.activation.handle_next()) is not Step.NOTHING:
                handled += step is Step.HANDLED
        return handled

    async def resume(self, run_id: str, answer: Json, *, by: str | None = None, **request: str) -> Exchange:
        """Answer a paused run, and handle pending messages in order until it is settled or pauses again.

        Args:
            request: ``call_id`` and ``args_hash`` of the request that is answered; by default the open one.

        Raises:
            RunNotFound, RunNotPaused, DecisionExpired, DecisionInvalid: the answer is not taken.
        """
        session = self.store.session(self.address.name, self.address.tenant)
        message_id = MessageId(run_id)
        named = cast("dict[str, Any]", request)
        answer_run(self.store, session, message_id, Answer(answer, by, **named), self.clock.now_ms())
        message = self.store.message(message_id)
        receipt = Receipt(session.session_id, message_id, message.position, repeated=True)
        return Exchange(receipt, await self._frames_of(message_id))

    async def advance(self, seconds: float) -> bool:
        """Advance the clock; if the agent is idle then, call `on_idle_timeout`, and passivate it if it agrees.

        Reminders that are due then are sent and handled, which wakes it again: one message for each, as after an
        outage of that time. Reminders of the store's other agents are sent to them, and wait in their inboxes, as do
        messages of `AgentContext.tell` whose time has come.

        Returns:
            whether it is awake.
        """
        self.clock.advance(seconds)
        self._set_variable()
        if self._activation is not None and seconds >= self._class.idle_timeout_s and await self._activation.idle():
            await self.sleep()
        progress = True
        while progress and (due := self.store.due_reminders(self.clock.now_ms(), 1000)):
            fired = [fire_reminder(self.store, self._ids, reminder, self.clock.now_ms()) for reminder in due]
            progress = any(not isinstance(result, NotFired) for result in fired)
            if any(
                reminder.session_id == self._session_id and result is not None
                for reminder, result in zip(due, fired, strict=True)
            ):
                progress |= await self.receive() > 0
        return self._activation is not None

    def reminders(self) -> Sequence[ScheduledReminder]:
        """Return the reminders that are set, by name."""
        return [scheduled(reminder) for reminder in of_program(self.store.reminders(self._session_id))]

    async def sleep(self) -> None:
        """Passivate the agent: end its activation in order."""
        activation = self.activation
        self._set_variable()
        await activation.stop()
        self.store.release_lease(activation.lease.session_id, activation.lease.epoch)
        self._activation = None

    async def configure(self, config: Mapping[str, Json]) -> None:
        """Change the agent's configuration: passivate it if it is awake; its next activation has the new one."""
        self._config = _checked(config)
        if self._activation is not None:
            await self.sleep()

    async def kill(self, how: str | None = None) -> None:
        """End its activation as a kill of its process would, and wake it again.

        Args:
            how: how the process ended, in a few words, for the record of the lost attempt.
        """
        await self.activation.abandon()
        await self._wake(unclean=True, lost=how)

    # -- looking at it --------------------------------------------------------------------------------------------

    @property
    def activation(self) -> Activation:
        """The running activation.

        Raises:
            RuntimeError: the agent sleeps.
        """
        if self._activation is None:
            raise RuntimeError(f"{self.address} sleeps; send it a message first")
        return self._activation

    @property
    def awake(self) -> bool:
        """Whether the agent is awake."""
        return self._activation is not None

    @property
    def state(self) -> JsonObject:
        """The committed state, read back from the journal."""
        return read_agent(self.store, self.blobs, self.address).state

    @property
    def workspace(self) -> Path:
        """The agent's directory."""
        return self.activation.workspace.root

    def events(self, event_type: str | None = None) -> list[tuple[Event, JsonObject]]:
        """Return the agent's events with their payloads, oldest first."""
        session = self.store.session(self.address.name, self.address.tenant)
        types = [event_type] if event_type else None
        return [
            (event, cast("JsonObject", payload_of(event, self.blobs)))
            for event in self.store.events(session.main_branch_id, types=types)
        ]

    def artifacts(self, turn: int | None = None) -> Sequence[Artifact]:
        """Return the agent's artifacts up to a turn, oldest first; up to its head if ``turn`` is ``None``."""
        return list_artifacts(self.store, self.blobs, self.address, turn)

    def artifact(self, artifact_id: str) -> bytes:
        """Return the content of an artifact.

        Raises:
            UnknownArtifact: there is none of that id.
        """
        return read_artifact(self.blobs, find_artifact(self.store, self.blobs, artifact_id))

    @property
    def _session_id(self) -> SessionId:
        return self.store.session(self.address.name, self.address.tenant).session_id

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _frames_of(self, message_id: MessageId, when_busy: BusyPolicy = BusyPolicy.ENQUEUE) -> Sequence[Frame]:
        """Handle pending messages until the stream of one ends, or none is pending; return its frames."""
        if self._activation is None:
            await self._wake(unclean=False)
        activation = self.activation
        with activation.streams.subscribe(message_id) as subscription:
            await activation.preempt(message_id, when_busy)
            while await self._one_step(subscription) is not Step.NOTHING:
                pass
            frames = subscription.take()
        return frames or await activation.settled(message_id)

    async def _one_step(self, subscription: Subscription) -> Step:
        """Handle the next message; `Step.NOTHING` if the stream of ours has ended, or no message is pending."""
        async with self._handling:  # tasks may send concurrently
            self._set_variable()
            return Step.NOTHING if subscription.ended else await self.activation.handle_next()

    async def _wake(self, *, unclean: bool, lost: str | None = None) -> None:
        session = self.store.session(self.address.name, self.address.tenant)
        lease = self.store.acquire_lease(
            session.session_id, self._holder, self.clock.now_ms(), _LEASE_MS, takeover=unclean
        )
        environment = Environment(
            self.store,
            self.blobs,
            DirectCommitter(self.store),
            self.clock,
            self._ids,
            self._open_workspace,
            run_store=at_once,
            run_blocking=at_once,
            config=self._config,
            known_types=lambda: self._options.known_types,
            asker=StoreAsker(self.store, self.blobs, self._ids, at_once, _nobody),
            frames=self._frames_of_others,
            read=self._read_another,
            open_fork=self._open_fork,
            models=self.models,
            meter=self._options.meter,
            tracer=self._options.tracer,
        )
        activation = Activation(self._class, self.address, lease, environment)
        try:
            await activation.start(unclean=unclean, lost=lost)
        except BaseException:  # like a host that fails to start: another class may follow on the same store
            await activation.abandon()
            self.store.release_lease(lease.session_id, lease.epoch)
            raise
        self._activation = activation
        _AWAKE.setdefault(self.store, WeakValueDictionary())[self.address] = activation

    async def _read_another(self, receiver: Address, message: JsonObject) -> Json:
        """Call a read-only handler of another agent on the same store, which a harness has awake."""
        activation = _AWAKE[self.store].get(receiver)
        if activation is None:
            raise AgentAsleep(f"no harness on this store runs {receiver}")
        return (await activation.read(message)).data

    async def _frames_of_others(
        self, receiver: Address, message_id: MessageId
    ) -> AsyncGenerator[Sequence[Frame], None]:
        """Yield the frames of a message of another agent on the same store, while a harness has it awake."""
        awake = _AWAKE[self.store]
        while True:
            if (activation := awake.get(receiver)) is not None:
                with suppress(PodiumError), activation.streams.subscribe(message_id) as subscription:
                    async for batch in subscription.batches(_LOOK_S):
                        if batch:
                            yield batch
                        elif awake.get(receiver) is not activation:
                            break
            await asyncio.sleep(_LOOK_S)

    def _set_variable(self) -> None:
        """Set the workspace variable for the agent's code, as in a process of its own."""
        if self._root is not None:
            set_workspace_variable(self._root)

    def _spec(self, request: WorkspaceRequest, layers: Path) -> LayerSpec:
        quota = workspace_quota_of(self._class)
        return LayerSpec(request.address.workspace_id, layers, request.base, request.epoch, request.turn, quota)

    @contextmanager
    def _open_fork(self, request: WorkspaceRequest) -> Iterator[Workspace]:
        with tempfile.TemporaryDirectory(prefix="fork-", dir=self._layers) as directory:
            spec = self._spec(request, Path(directory) / "layers")
            opened = open_dir_workspace(spec, self.blobs, Path(directory) / "files", self.clock)
            with closing(opened.workspace):
                yield opened.workspace

    async def _open_workspace(self, request: WorkspaceRequest) -> Opened:
        spec = self._spec(request, self._layers / "layers")
        opened = open_dir_workspace(spec, self.blobs, self._layers / "files", self.clock)
        self._root = opened.workspace.root
        self._set_variable()
        return opened


async def _nobody(_receiver: Address) -> None:
    """Wake no agent: another harness on the same store handles what it is asked, by `AgentHarness.receive`."""


def _checked(config: Mapping[str, Json]) -> JsonObject:
    """Return a copy of a configuration.

    Raises:
        InvalidValue: JSON cannot represent it.
    """
    return cast("JsonObject", plain_json(dict(config)))
