"""A home whose agents run in the test's process, and a gateway over it: no Ray, no socket.

The journal and the blobs are the home's own, on disk. `HarnessFleet` stands for the home's service: it runs each agent
in an `AgentHarness`, which handles messages by the code of production.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx

from chronicle.canonical import encode
from chronicle.clock import ManualClock
from chronicle.errors import ChronicleError, InboxFull, NotFound
from chronicle.ids import IdSource, MessageId
from coordinator.access.administration import KeyAdministration
from coordinator.access.audit import Audit
from coordinator.access.caller import OpenAccess
from coordinator.access.key_access import KeyAccess
from coordinator.fleet.facts import unreachable_node
from coordinator.gateway.app import AppOptions, create_app
from coordinator.gateway.routes.project import Reload
from coordinator.home import Home
from coordinator.operations.agents import HomeAgents
from coordinator.registry.registry import RegisteredAgent
from coordinator.responses.reading import SessionReader
from coordinator.responses.responses import HomeResponses
from coordinator.service.client import AdmittedMessage, ServiceError, ServiceRefused
from coordinator.streams.home_streams import HomeStreams
from podium.address import Address
from podium.agent import BaseAgent
from podium.agent.agent_types import agent_type_of
from podium.agent.handler_specs import interface_of
from podium.agent_record import find_session
from podium.caller import NOBODY, Caller
from podium.errors import PodiumError, UnknownAgentType
from podium.history.branching import rewind_agent
from podium.testing import AgentHarness
from podium.turn.busy import BusyPolicy
from podium.turn.journal.frames import retry_frames
from podium.turn.upload import FileChanged, change_file
from tests.unit.coordinator.gateway.documented_answers import checking
from tests.unit.coordinator.responses.model_calls import TestModels
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Sequence
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.content.content import Content
    from coordinator.fleet.facts import AgentFacts, AwakeFacts, NodeFacts
    from coordinator.homes.sqlite.keys import SqliteKeyRecords
    from coordinator.telemetry.recorder import Series, Value
    from podium.events import Part
    from podium.turn.stream import Frame

__all__ = ["HarnessFleet", "ServedHome", "served_home"]


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors into those that a client of the service gets."""
    try:
        yield
    except (PodiumError, ChronicleError) as error:
        raise ServiceRefused(type(error).__name__, str(error)) from error


class HarnessFleet:
    """The agents of a home, each in a harness, behind the interface of a link to the home's service."""

    def __init__(self, home: Home, clock: ManualClock, *classes: type[BaseAgent]) -> None:
        self.store: JournalStore = home.journal()
        self.blobs: BlobStore = home.blobs()
        self.clock = clock
        self._classes = {agent_type_of(kind): kind for kind in classes}
        self._harnesses: dict[str, AgentHarness] = {}
        self._drained = False
        self.redeploys = 0
        self.inbox_limit = 1000
        self.losses = 0
        """How often the connection breaks while a message is followed."""
        self.followed: list[str] = []
        """The messages that somebody began to follow."""
        self._handling: set[asyncio.Task[int]] = set()
        self.traces: list[str | None] = []
        """With which messages came."""
        self.measured: dict[Series, Value] = {}
        """What the service answers when it is asked for metrics."""
        self.silence: Exception | None = None
        """What is raised instead."""

    async def client(self) -> Any:
        return self

    async def metrics(self) -> dict[Series, Value]:
        if self.silence is not None:
            raise self.silence
        return self.measured

    async def harness(self, agent: str) -> AgentHarness:
        """Return the harness of an agent, which is awake."""
        found = self._harnesses.get(agent)
        if found is None:
            address = Address.parse(agent)
            found = AgentHarness(
                self._classes[address.agent_type],
                address.key,
                store=self.store,
                blobs=self.blobs,
                clock=self.clock,
                tenant=address.tenant,
            )
            self._harnesses[agent] = await found.__aenter__()
        return found

    async def admit(
        self,
        agent: str,
        message: dict[str, Any],
        idempotency_key: str | None = None,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
        trace: str | None = None,
        caller: Caller = NOBODY,
    ) -> AdmittedMessage:
        self.traces.append(trace)
        with refusals():
            address = Address.parse(agent)
            if address.agent_type not in self._classes:
                raise UnknownAgentType(
                    f"no agent type {agent!r}; there is {', '.join(self._classes)}", tuple(self._classes)
                )
            encode(message)
            harness = await self.harness(agent)
            if len(self.store.pending(find_session(self.store, address).session_id)) >= self.inbox_limit:
                raise InboxFull(self.inbox_limit)
            receipt = harness.admit(message, idempotency_key, when_busy, caller=caller)
        before = self.store.waiting_before(receipt.message_id)
        self._handling.add(task := asyncio.create_task(harness.receive()))
        task.add_done_callback(self._handling.discard)
        await harness.activation.preempt(receipt.message_id, when_busy)
        return AdmittedMessage(receipt.message_id, receipt.position, before, receipt.repeated)

    async def follow(self, agent: str, message_id: str) -> AsyncGenerator[Frame, None]:
        activation = (await self.harness(agent)).activation
        if self.losses:
            self.losses -= 1
            raise ServiceError("the connection broke")
        with refusals(), activation.streams.subscribe(message_id) as subscription:
            self.followed.append(message_id)
            settled = await activation.settled(MessageId(message_id))
            message = self.store.message(MessageId(message_id))
            head = self.store.head(find_session(self.store, Address.parse(agent)).main_branch_id)
            if settled:
                for frame in [*retry_frames(self.store, self.blobs, head, message), *settled]:
                    yield frame
                return
            async for batch in subscription.batches():
                for frame in batch:
                    yield frame

    async def cancel(self, agent: str, message_id: str) -> None:
        with refusals():
            await (await self.harness(agent)).activation.cancel(MessageId(message_id))
        await until(lambda: self.store.message(MessageId(message_id)).status.is_settled)

    async def read(self, agent: str, message: dict[str, Any]) -> tuple[int, Any]:
        with refusals():
            find_session(self.store, Address.parse(agent))
            found = await (await self.harness(agent)).activation.read(message)
            return found.turn, found.data

    async def poke(self, agent: str) -> bool:
        await (await self.harness(agent)).receive()
        return True

    async def passivate(self, agent: str) -> None:
        await self.sleep(agent)

    async def facts(self, agent: str) -> AgentFacts:
        awake = agent in self._harnesses
        return {
            "known": True,
            "problem": None,
            "held": False,
            "host": {
                "host_id": "host_1",
                "node": "local",
                "isolation": "process",
                "sandbox": "bubblewrap",
                "sandbox_works": "bubblewrap",
                "pid": 4711,
                "activated": True,
                "message_id": None,
                "left_s": None,
                "silence": None,
            }
            if awake
            else None,
            "queue": None,
            "retry": None,
            "quarantine": None,
            "death": None,
            "over_quota": None,
            "outbox_held": None,
        }

    async def awake(self, agents: Sequence[str]) -> dict[str, AwakeFacts]:
        if self.silence is not None:
            raise self.silence
        facts: AwakeFacts = {"isolation": "process", "sandbox": "landlock", "memory": 1024}
        return {agent: facts for agent in agents if agent in self._harnesses}

    async def types(self) -> list[dict[str, Any]]:
        return [
            RegisteredAgent(name, "agents.py", kind.__name__, interface=interface_of(kind)).described
            for name, kind in sorted(self._classes.items())
        ]

    async def nodes(self) -> list[NodeFacts]:
        node, agents = unreachable_node("local", "its manager does not answer"), len(self._harnesses)
        return [{**node, "starting": 0, "warm": 1, "assigned": agents, "agents": agents, "drained": self._drained}]

    async def drain(self, node: str, *, undo: bool = False) -> None:
        if node != "local":
            with refusals():
                raise NotFound(f"there is no node {node}; there is local")
        self._drained = not undo

    async def redeploy(self) -> list[str]:
        self.redeploys += 1
        if self.silence is not None:
            raise self.silence
        return sorted(self._harnesses)

    async def rewind(self, agent: str, turn: int, only: Collection[Part] | None) -> tuple[int, int | None]:
        await self.sleep(agent)
        with refusals():
            plan, head = rewind_agent(
                self.store, self.blobs, Address.parse(agent), turn, only, IdSource(), self.clock.now_ms()
            )
        return plan.now.turn, head.turn if head is not None else None

    async def change_file(self, agent: str, path: str, content: Content | None) -> FileChanged:
        await self.sleep(agent)
        with refusals():
            return change_file(
                self.store, self.blobs, Address.parse(agent), path, content, IdSource(), self.clock.now_ms()
            )

    def pending(self, agent: str) -> MessageId:
        """Return the first message that an agent has not handled."""
        return self.store.pending(find_session(self.store, Address.parse(agent)).session_id)[0].message_id

    async def sleep(self, agent: str) -> None:
        """End an agent's activation in order."""
        found = self._harnesses.pop(agent, None)
        if found is not None:
            await found.__aexit__(None, None, None)

    async def close(self) -> None:
        await asyncio.gather(*self._handling)
        for agent in list(self._harnesses):
            await self.sleep(agent)
        self.store.close()
        self.blobs.close()


@dataclass(frozen=True)
class ServedHome:
    """A gateway's client, and what is behind it."""

    http: httpx.AsyncClient
    fleet: HarnessFleet
    agents: HomeAgents
    app: Any
    leaving: asyncio.Event
    """Set it to have the client leave, as soon as its request was read."""
    models: TestModels

    async def send(self, agent: str, *texts: str) -> AgentHarness:
        """Have an agent handle messages, past the gateway."""
        harness = await self.fleet.harness(agent)
        for text in texts:
            exchange = await harness.send({"text": text})
            assert exchange.ok, exchange.error
        return harness

    async def get(self, path: str, status: int = 200, **parameters: Any) -> Any:
        """GET a path below ``/v1``; return the JSON of the answer."""
        answer = await self.http.get(f"/v1{path}", params=parameters)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def error(self, method: str, path: str, status: int, **request: Any) -> dict[str, Any]:
        """Return the error of a request that is refused."""
        answer = await self.http.request(method, path, **request)
        assert answer.status_code == status, answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert {"message", "type", "code", "param"} <= error.keys()
        return error


def leaving_client(app: Any, leaving: asyncio.Event) -> Any:
    """Return an application whose client leaves when an event is set."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        read = False

        async def received() -> Any:
            nonlocal read
            if not read:
                message = await receive()
                read = not message.get("more_body", False)
                return message
            await leaving.wait()
            return {"type": "http.disconnect"}

        await app(scope, received, send)

    return served


@asynccontextmanager
async def served_home(
    path: Path,
    *classes: type[BaseAgent],
    keys: SqliteKeyRecords | None = None,
    reload: Reload | None = None,
    page: bool = False,
    **limits: Any,
) -> AsyncIterator[ServedHome]:
    """Serve a new home with agents of some classes; with keys, callers need one of them."""
    home = Home(path).create()
    clock = ManualClock()
    fleet = HarnessFleet(home, clock, *classes)
    agents = HomeAgents(home, fleet, clock)
    access = KeyAccess(keys, clock) if keys is not None else OpenAccess()
    audit = Audit(home.logs, clock)
    administration = KeyAdministration(keys, audit, clock) if keys is not None else None
    streams = HomeStreams(fleet.client, agents)
    accepting = {agent_type_of(kind) for kind in classes if kind.accepts_client_state}
    models = TestModels()
    responses = HomeResponses(
        agents.stores, partial(SessionReader, clock=clock), models, clock, IdSource(), agents.quotas.check_record
    )
    app = create_app(
        agents,
        access,
        streams,
        responses=responses,
        keys_of_home=administration,
        audit=audit,
        options=AppOptions(reload=reload, accepts_state=accepting.__contains__, page=page, **limits),
    )
    leaving = asyncio.Event()
    transport = httpx.ASGITransport(leaving_client(app, leaving), raise_app_exceptions=False)
    try:
        client = httpx.AsyncClient(
            transport=transport, base_url="http://localhost", event_hooks={"response": [checking(app, leaving)]}
        )
        async with streams, responses, client as http:
            yield ServedHome(http, fleet, agents, app, leaving, models)
    finally:
        await asyncio.shield(fleet.close())
        if isinstance(access, KeyAccess):
            await access.close()
        agents.close()
