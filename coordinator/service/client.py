"""A connection to a home's service: requests, and streams of messages; `coordinator.service.connecting` opens it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import InvalidInput
from coordinator.channel import BatchedWriter, PacketTooLong, from_json, id_of, pack, read_packet
from coordinator.process_environment import ProcessEnvironment
from coordinator.service.protocol import PROTOCOL
from coordinator.telemetry.snapshots import from_wire
from podium.caller import NOBODY, Caller
from podium.errors import PodiumError
from podium.tasks import BackgroundTasks
from podium.turn.busy import BusyPolicy
from podium.turn.stream import Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.workspace.content.content import Content
    from coordinator.fleet.facts import AgentFacts, AwakeFacts, NodeFacts
    from coordinator.registry.registry import Registry
    from coordinator.telemetry.recorder import Series, Value
    from podium.events import Part
    from podium.turn.stream import Frame
    from podium.turn.upload import FileChanged

__all__ = ["AdmittedMessage", "AgentRef", "ServiceClient", "ServiceError", "ServiceLeft", "ServiceRefused"]

_BEAT_S: Final = 10.0
"""Longest silence of the service while an answer is awaited; then it is probed."""
_SILENT_S: Final = 60.0
"""Timeout of a probe; a busy machine must not be mistaken for a dead service."""
_CLOSE_S: Final = 2.0
"""Timeout for the connection to close."""
_HANDED_OVER: Final = "HandedOver"
"""The error of a service that has handed the home over."""
_LOST: Final = "the service of this home ended; run the command again: accepted messages are kept"


class ServiceError(PodiumError):
    """The service could not be started or reached. Accepted messages are safe."""


class ServiceLeft(ServiceError):
    """Another service has taken the home over, and this one has done nothing: ask that one."""


class ServiceRefused(PodiumError):
    """The service refused an operation.

    Attributes:
        kind: the name of the error's class in the service.
        retry_after_s: seconds after which a repetition may succeed; ``None`` if the service named none.
        param: the field of a message that is wrong; ``None`` if none is named.
    """

    def __init__(self, kind: str, message: str, retry_after_s: int | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.param = param


@dataclass(frozen=True, slots=True)
class AgentRef:
    """An agent class: its file, its name, the agent type that it declares, and the configuration of its agents."""

    file: str
    class_name: str
    agent_type: str
    config: JsonObject = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return the object that a request names it by."""
        return {"file": self.file, "class": self.class_name, "agent_type": self.agent_type, "config": self.config}


@dataclass(frozen=True, slots=True)
class AdmittedMessage:
    """The receipt of an admitted message."""

    message_id: str
    position: int
    """Its place in the inbox, from 1."""
    before: int
    """Messages ahead of it, the one being handled included."""
    repeated: bool
    """Whether the idempotency key was used before, with the same message: this is the receipt of that admission."""


class ServiceClient:
    """A connection to a home's service.

    Args:
        is_here: whether the service runs on this machine.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_here: bool = True) -> None:
        self.is_here = is_here
        self._reader = reader
        self._writer = writer
        self._requests = BatchedWriter(writer)
        self._ids = itertools.count(1)
        self._answers: dict[int | None, _Answers] = {}
        self._lost = asyncio.Event()
        self._left = asyncio.Event()
        """Set when another service has the home, or the connection has ended."""
        self._probing = asyncio.Lock()
        self._heard_s = asyncio.get_running_loop().time()
        self.notice: str | None = None
        """A notice about this machine, such as why workspaces are plain directories; set by `hello`."""
        self.surroundings: ProcessEnvironment | None = None
        """The environment that agents inherit; set by `hello`, unless the service is of an earlier version."""
        self._tasks = BackgroundTasks()
        _ = self._tasks.start(self._listen(), "service-listener")

    async def hello(self) -> int:
        """Greet the service; return the version of its protocol.

        Raises:
            ServiceError: the service is ending.
        """
        answer = await self._ask({"op": "hello", "protocol": PROTOCOL})
        self.notice = answer["notice"]
        if "surroundings" in answer:
            self.surroundings = ProcessEnvironment.from_wire(answer["surroundings"])
        spoken: int = answer["protocol"]
        return spoken

    async def close(self) -> None:
        """Close the connection; messages that were sent are handled nevertheless."""
        self._tasks.cancel()
        self._requests.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):  # a service that hangs does not drain its socket
                await self._writer.wait_closed()

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost.is_set()

    async def wait_lost(self) -> None:
        """Return when the connection has ended."""
        await self._lost.wait()

    @property
    def has_left(self) -> bool:
        """Whether the service has told that another one has the home: only what is followed here goes on."""
        return self._left.is_set()

    async def wait_left(self) -> None:
        """Return when another service has the home, or the connection has ended."""
        await self._left.wait()

    # -- messages -------------------------------------------------------------------------------------------------

    async def send(
        self,
        agent: AgentRef,
        key: str,
        message: dict[str, Any],
        idempotency_key: str | None = None,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
    ) -> AsyncGenerator[Frame, None]:
        """Send a message and yield its frames, the terminal one last.

        Ending the iteration early does not cancel the message; `cancel` does.

        Raises:
            ServiceRefused: the message was not admitted, or its agent cannot be woken.
            ServiceError: the connection broke.
        """
        request = {
            "op": "send",
            "agent": agent.to_wire(),
            "key": key,
            "message": message,
            "idempotency_key": idempotency_key,
            "when_busy": when_busy,
        }
        async with aclosing(self._stream(request)) as frames:
            async for frame in frames:
                yield frame

    async def admit(
        self,
        agent: str,
        message: dict[str, Any],
        idempotency_key: str | None = None,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
        trace: str | None = None,
        caller: Caller = NOBODY,
    ) -> AdmittedMessage:
        """Admit a message, durably, for an agent of a type that the service knows. It is handled without a follower.

        Args:
            agent: its address; the agent need not exist yet.
            trace: the ``traceparent`` of what sends it.
            caller: who asks, as the client has authenticated them.

        Raises:
            ServiceRefused: the message was not admitted; with the kind ``UnknownAgentType`` if the type is not known.
            ServiceError: the connection broke; the message may have been admitted.
        """
        request = {
            "op": "admit",
            "agent": agent,
            "message": message,
            "idempotency_key": idempotency_key,
            "when_busy": when_busy,
            "trace": trace,
            "caller": caller.to_json(),
        }
        return AdmittedMessage(**await self._ask(request))

    async def follow(self, agent: str, message_id: str) -> AsyncGenerator[Frame, None]:
        """Yield the frames of an admitted message from the beginning of its attempt, the terminal one last.

        Attempts that failed before are told by ``turn_retry``. Frames of a message that is settled are read from the
        journal. Text for a slow reader is merged; it delays no other request.

        Args:
            agent: the agent's address.

        Raises:
            ServiceRefused: there is no such message, or its agent cannot be woken.
            ServiceError: the connection broke.
        """
        request = {"op": "follow", "agent": agent, "message_id": message_id}
        async with aclosing(self._stream(request)) as frames:
            async for frame in frames:
                yield frame

    async def cancel(self, agent: str, message_id: str) -> None:
        """Cancel a pending, running or parked message; durable on return.

        The message's stream ends with an ``error`` frame.

        Args:
            agent: the agent's address.

        Raises:
            ServiceRefused: the message was already handled, or does not exist.
            ServiceError: the connection broke; the message may have been cancelled.
        """
        await self._ask({"op": "cancel", "agent": agent, "message_id": message_id})

    # -- agents ---------------------------------------------------------------------------------------------------

    async def poke(self, agent: str) -> bool:
        """Have an agent check its inbox; return ``False`` if the service does not know its code."""
        looks: bool = (await self._ask({"op": "poke", "agent": agent}))["looks"]
        return looks

    async def forget(self, agent: str) -> None:
        """Have the nodes remove what they keep of a sleeping agent that is deleted."""
        await self._ask({"op": "forget", "agent": agent})

    async def passivate(self, agent: str) -> None:
        """Put an agent to sleep after its running turn; return when it sleeps."""
        await self._ask({"op": "passivate", "agent": agent})

    async def rewind(self, agent: str, turn: int, only: Collection[Part] | None) -> tuple[int, int | None]:
        """Rewind an agent to a turn, after its running turn.

        Args:
            only: the parts to restore; all if ``None``.

        Returns:
            its last turn before, and the turn of the rewind; ``None`` if there was nothing to change.
        """
        parts = list(only) if only is not None else None
        answer = await self._ask({"op": "rewind", "agent": agent, "turn": turn, "only": parts})
        return answer["from"], answer["turn"]

    async def change_file(self, agent: str, path: str, content: Content | None) -> FileChanged:
        """Put a file of an agent, or delete it, after its running turn, as a turn of its own.

        Args:
            path: relative to the workspace's root.
            content: it is in the home's blob store; ``None`` deletes the file.
        """
        stored = {"id": content.id, "size": content.size, "chunked": content.chunked} if content is not None else None
        from podium.turn.upload import FileChanged  # noqa: PLC0415  slow to import, and few clients need it

        answer = await self._ask({"op": "change_file", "agent": agent, "path": path, "content": stored})
        return FileChanged(**answer)

    async def position(self, agent: str) -> tuple[int | None, bool]:
        """Return an agent's last turn, ``None`` if it never started, and whether messages wait in its inbox."""
        answer = await self._ask({"op": "position", "agent": agent})
        return answer["turn"], answer["waits"]

    async def ps(self) -> list[dict[str, Any]]:
        """Return the running hosts."""
        result: list[dict[str, Any]] = (await self._ask({"op": "ps"}))["hosts"]
        return result

    async def read(self, agent: str, message: dict[str, Any]) -> tuple[int, Any]:
        """Call a read-only handler; return the turn whose state it has read, and its result."""
        answer = await self._ask({"op": "read", "agent": agent, "message": message})
        return answer["turn"], answer["data"]

    async def facts(self, agent: str) -> AgentFacts:
        """Return what the fleet knows of an agent, beside the journal."""
        facts: AgentFacts = (await self._ask({"op": "facts", "agent": agent}))["facts"]
        return facts

    async def awake(self, agents: Sequence[str]) -> dict[str, AwakeFacts]:
        """Return those of agents that have a host, by address."""
        awake: dict[str, AwakeFacts] = (await self._ask({"op": "awake", "agents": list(agents)}))["agents"]
        return awake

    async def nodes(self) -> list[NodeFacts]:
        """Return the nodes and their hosts."""
        nodes: list[NodeFacts] = (await self._ask({"op": "nodes"}))["nodes"]
        return nodes

    async def drain(self, node: str, *, undo: bool = False) -> None:
        """Move the agents of a node to other nodes after their running turns, or use a drained node again."""
        await self._ask({"op": "drain", "node": node, "undo": undo})

    # -- the service ----------------------------------------------------------------------------------------------

    async def register(
        self, registry: Registry, *, reload: bool = False, follow_edits: bool | None = None
    ) -> list[str]:
        """Set the agent types that are known; agents of these types with pending messages are woken.

        Args:
            reload: have awake agents move to the current code and configuration after their running turns.
            follow_edits: whether each message to an awake agent is handled by the current code and configuration; as
                before if ``None``, at first not.

        Returns:
            the addresses of the agents that move by ``reload``.
        """
        request = {"op": "register", "agents": registry.to_wire(), "reload": reload, "follow_edits": follow_edits}
        reloaded: list[str] = (await self._ask(request))["reloaded"]
        return reloaded

    async def redeploy(self) -> list[str]:
        """Have the current deploy of the home used; return the addresses of the awake agents that move to it.

        They end after their running turns.

        Raises:
            ServiceRefused: the deploy cannot be read; nothing changes.
        """
        reloaded: list[str] = (await self._ask({"op": "redeploy"}))["reloaded"]
        return reloaded

    async def pin(self) -> None:
        """Have the service go on without clients, until `down`."""
        await self._ask({"op": "pin"})

    async def down(self, timeout_s: float | None = None) -> None:
        """Have the service end in order. It answers first; the connection ends when all agents have ended.

        Args:
            timeout_s: timeout of running turns, which are taken back after it; by default that of the service.
        """
        await self._ask({"op": "down", "timeout_s": timeout_s})

    async def status(self) -> dict[str, Any]:
        """Return the state of the service; the keys are listed in `coordinator.service.protocol`."""
        return await self._ask({"op": "status"})

    async def types(self) -> list[dict[str, Any]]:
        """Return the agent types that are known; the keys are listed in `coordinator.service.protocol`."""
        types: list[dict[str, Any]] = (await self._ask({"op": "types"}))["types"]
        return types

    async def metrics(self) -> dict[Series, Value]:
        """Return the metrics of the home."""
        return from_wire((await self._ask({"op": "metrics"}))["metrics"])

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Dispatch answers to their requests, until the connection ends."""
        try:
            while (data := await read_packet(self._reader)) is not None:
                self._heard_s = asyncio.get_running_loop().time()
                number, answer = _answer_of(data)
                if number is None and "left" in answer:
                    self._left.set()
                answers = self._answers.get(number)
                if answers is not None:
                    answers.add(answer)
        except PacketTooLong:
            pass  # reported to the waiting requests below
        finally:
            self._lost.set()
            self._left.set()
            for answers in self._answers.values():
                answers.fail(ServiceError(_LOST))

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        async with self._asking(request) as answers:
            while not (await asyncio.wait({answers.result}, timeout=_BEAT_S))[0]:
                await self._check_answers()
            return answers.result.result()

    async def _stream(self, request: dict[str, Any]) -> AsyncGenerator[Frame, None]:
        async with self._asking(request) as answers, aclosing(answers.frames.batches(_BEAT_S)) as batches:
            async for batch in batches:
                if not batch:
                    await self._check_answers()
                    continue
                for frame in batch:
                    yield frame

    async def _check_answers(self) -> None:
        """Probe the service, unless it was heard of lately.

        Raises:
            ServiceError: it did not answer.
        """
        async with self._probing:  # one probe for all requests
            if asyncio.get_running_loop().time() - self._heard_s < _BEAT_S:
                return
            try:
                async with self._asking({"op": "ping"}) as answers, asyncio.timeout(_SILENT_S):
                    await asyncio.shield(answers.result)
            except TimeoutError:
                raise ServiceError(
                    f"the service of this home has not answered for {_SILENT_S:g} s: it hangs; accepted messages are "
                    "kept"
                ) from None

    @asynccontextmanager
    async def _asking(self, request: dict[str, Any]) -> AsyncIterator[_Answers]:
        request_id = next(self._ids)
        try:
            packet = pack({"id": request_id, **request})
        except PacketTooLong as error:
            raise ServiceRefused("InvalidInput", f"the message is too long: {error}") from None
        answers = self._answers[request_id] = _Answers()
        if self._lost.is_set():
            answers.fail(ServiceError(_LOST))
        try:
            self._requests.write(packet)
            with contextlib.suppress(ConnectionError):  # reported by the listener
                await self._requests.drain()
            yield answers
        finally:
            del self._answers[request_id]


def _answer_of(data: bytes) -> tuple[int | None, dict[str, Any]]:
    """Return the number of a request, and its answer in a packet; an error for it if the packet cannot be read."""
    try:
        answer = from_json(data)
        return answer["id"], answer
    except (InvalidInput, KeyError, TypeError) as error:
        message = f"the service's answer cannot be read: {error}"
        return id_of(data), {"error": {"type": "InvalidInput", "message": message}}


class _Answers:
    """Answers of the service to one request: a result or an error, and frames before it."""

    def __init__(self) -> None:
        self.frames = Subscription()
        self.result: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def add(self, answer: dict[str, Any]) -> None:
        if "frames" in answer:
            for frame in answer["frames"]:
                self.frames.push(frame)
        elif "error" in answer:
            error = answer["error"]
            if error["type"] == _HANDED_OVER:
                self.fail(ServiceLeft(error["message"]))
                return
            self.fail(ServiceRefused(error["type"], error["message"], error.get("retry_after_s"), error.get("param")))
        elif not self.result.done():
            self.result.set_result(answer["result"])

    def fail(self, error: PodiumError) -> None:
        self.frames.fail(error)
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # marks it as retrieved: a stream has it from its frames
