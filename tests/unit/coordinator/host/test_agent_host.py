"""Activations of a host: whose code runs while one begins, and what becomes of one that nobody waits for any more."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from pydantic import BaseModel

from chronicle.errors import Unavailable
from chronicle.journal.records import MessageStatus, NewMessage
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec
from coordinator.channel import pack
from coordinator.fleet.model import Code
from coordinator.host import agent_host
from coordinator.host.agent_host import AgentHost
from coordinator.host.host_config import HostConfig
from coordinator.host.loop_watch import running_agent
from coordinator.host.node.process_exit import tell_of_os_exit
from coordinator.host.node.process_marks import ProcessMark
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, handler
from podium.agent.models.delta_state import DeltaState
from podium.blocking import at_once
from podium.errors import AgentAsleep, HostDied
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from chronicle.canonical import JsonObject
    from chronicle.journal.records import Lease
    from chronicle.workspace.port import Opened
    from coordinator.host.surroundings import HostParts
    from coordinator.telemetry.reports import Report
    from podium.turn.ports import Environment, WorkspaceRequest

DEADLINE_S = 30
ALICE, BOB = Address("thinker", "alice"), Address("thinker", "bob")


class Thinker(BaseAgent):
    """Tells whose task makes it."""

    isolation = "shared"
    makers: ClassVar[list[tuple[Address | None, str]]] = []

    class State(DeltaState):
        count: int = 0

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.makers.append((running_agent(), task.get_name()))


class Speaker(BaseAgent):
    """Looks whether its first text has reached its reader, before it lets anything else run."""

    isolation = "shared"
    reader: ClassVar[socket.socket]
    heard: ClassVar[list[bytes]] = []

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        reply = await ctx.send_message("")
        await reply.stream_token("begun ")
        self.heard.append(self.reader.recv(65536))
        await reply.stream_token("and ended")


class Around:
    """Surroundings whose workspaces open when they may."""

    def __init__(self, parts: HostParts, directory: Path) -> None:
        self.parts = parts
        self._directory = directory
        self.may_open = asyncio.Event()
        self.opening = 0
        self.left: list[tuple[Address, bool]] = []

    def enter(self, address: Address, config: JsonObject, *, unclean: bool) -> Environment:
        del address, unclean
        return self.parts.environment(self.parts.stores.committer(), self._open, config, at_once)

    async def leave(self, address: Address, *, evicted: bool) -> None:
        self.left.append((address, evicted))

    def close(self) -> None:
        pass

    async def _open(self, request: WorkspaceRequest) -> Opened:
        self.opening += 1
        await self.may_open.wait()
        name = request.address.workspace_id
        spec = LayerSpec(name, self._directory / "layers", request.base, request.epoch, request.turn)
        return open_dir_workspace(spec, self.parts.stores.blobs, self._directory / "files", self.parts.clock)


class Shared:
    """A shared host, in this process, which imports a class of this module."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, agent_class: type[BaseAgent]) -> None:
        def surround(parts: HostParts, *_: object) -> Around:
            self.around = Around(parts, directory)
            return self.around

        monkeypatch.setattr(agent_host, "load_agent_class", lambda *_: agent_class)
        monkeypatch.setattr(agent_host, "ManyAgents", surround)
        self.config = HostConfig(
            host_id="host_1",
            home=str(directory),
            journal=str(directory / "journal.db"),
            blobs_url=f"file://{directory / 'blobs'}",
            layers=str(directory / "layers"),
            home_id="home",
            home_identity="home",
            workspaces=str(directory / "workspaces"),
            path_locks=str(directory / "places"),
            link=str(directory / "link"),
            zygote_socket="",
            presentation="dir",
            logs=str(directory),
            inbox_limit=1000,
            lease_ttl_s=60.0,
            shared_host_bytes=1 << 40,
            block_limit_s=60.0,
            last_words=str(directory / "words"),
            deliveries=str(directory / "s"),
            report_interval_s=0,
        )

        async def report(_: Report) -> None:
            pass

        async def wake(_: Address) -> None:
            pass

        self.host = AgentHost(self.config, lambda: None, report, wake, lambda _: None)
        self.host.load(Code(__file__, agent_class.__name__, ALICE.agent_type))
        self.store, self.ids = self.around.parts.stores.journal, self.around.parts.ids

    def lease(self) -> Lease:
        now_ms = self.around.parts.clock.now_ms()
        session = self.store.ensure_session(ALICE.name, self.ids.session(now_ms), self.ids.branch(now_ms), now_ms)
        return self.store.acquire_lease(session.session_id, "host_1", now_ms, 60_000)

    def activate(self) -> asyncio.Task[int]:
        return asyncio.create_task(self.host.activate(ALICE, self.lease(), unclean=False))

    async def end(self) -> None:
        self.around.may_open.set()
        self.host.stop_all()
        await until(
            lambda: not any(task.get_name().startswith(("agent ", "activate ")) for task in asyncio.all_tasks())
        )
        self.host._deliveries.close()
        await until(lambda: not renews_leases())
        asyncio.get_running_loop().set_task_factory(None)
        self.store.close()
        self.around.parts.stores.blobs.close()


def renews_leases() -> bool:
    return any(thread.name == "leases" for thread in threading.enumerate())


@pytest.fixture
async def shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncGenerator[Shared]:
    def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(ProcessMark, "put_on", nothing)
    monkeypatch.setattr(agent_host, "set_workspace_variable", nothing)
    monkeypatch.setattr(agent_host, "log_to", nothing)
    Thinker.makers.clear()
    host = Shared(tmp_path, monkeypatch, getattr(request, "param", Thinker))
    yield host
    await host.end()


async def test_what_a_class_does_as_it_is_activated_is_its_agents(shared: Shared) -> None:
    shared.around.may_open.set()
    assert await shared.activate() == 0
    assert Thinker.makers == [(ALICE, "activate thinker/alice")]
    assert shared.host.runs(ALICE)


async def test_an_agent_is_activated_once_at_a_time(shared: Shared) -> None:
    first = shared.activate()
    await until(lambda: shared.around.opening)
    with pytest.raises(Unavailable, match="is ending an earlier activation"):
        await shared.activate()
    shared.around.may_open.set()
    await first
    assert shared.around.opening == 1


async def test_an_activation_that_is_given_up_ends_when_it_has_started(shared: Shared) -> None:
    activating = shared.activate()
    await until(lambda: shared.around.opening)
    shared.host.stop(ALICE, 0.0)
    shared.around.may_open.set()
    with pytest.raises(AgentAsleep, match="was given up"):
        await activating
    assert not shared.host.runs(ALICE)
    assert shared.around.left == [(ALICE, False)]
    await until(lambda: not renews_leases())
    await shared.activate()
    assert shared.host.runs(ALICE)


async def test_agents_that_block_their_threads_do_not_keep_others_from_asking(shared: Shared) -> None:
    """``asyncio.to_thread`` is the agents': their calls may block all of its threads."""
    loop, may_go_on = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    blocked = loop.run_in_executor(None, may_go_on.wait, 60)
    store = shared.store
    question = NewMessage(shared.ids.message(0), b"{}", 0, "key")
    asking = asyncio.create_task(shared.around.parts.stores.asker.ask(BOB, ALICE, question, print))
    await until(lambda: [store.pending(session.session_id) for session in store.sessions(ALICE.name)] not in ([], [[]]))
    assert not blocked.done()
    asking.cancel()
    may_go_on.set()
    assert await blocked


@pytest.mark.parametrize("shared", [Speaker], indirect=True)
async def test_the_first_text_of_a_turn_has_gone_out_when_its_code_goes_on(shared: Shared) -> None:
    """Code that does not wait keeps the event loop; what it said before must not wait for it."""
    Speaker.heard.clear()
    shared.around.may_open.set()
    await shared.activate()
    store = shared.store
    (session,) = store.sessions(ALICE.name)
    receipt = store.admit(session.session_id, NewMessage(shared.ids.message(0), b"{}", 0, "key"), 10)
    with socket.socket(socket.AF_UNIX) as Speaker.reader:
        Speaker.reader.connect(shared.config.deliveries)
        about = {"agent": str(ALICE), "message_id": receipt.message_id, "position": receipt.position, "offer": None}
        Speaker.reader.sendall(pack({"id": 1, **about}))
        Speaker.reader.setblocking(False)
        await until(lambda: store.head(session.main_branch_id).turn == 1)
        assert b'"begun "' in Speaker.heard[0]


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_host_whose_activation_was_cancelled_says_that_it_is_unusable(
    shared: Shared, begins: bool, waits: bool
) -> None:
    """Code that cancels all tasks may do so before the coordinator's call comes that waits for an end."""
    shared.around.may_open.set()
    await shared.host.activate(ALICE, shared.lease(), unclean=False)
    if begins:
        await asyncio.sleep(0)
    waiting = asyncio.create_task(shared.host.wait_ended(0))
    if waits:
        await asyncio.sleep(0)
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == f"agent {ALICE}")
    task.cancel()
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(HostDied, match="cancelled tasks that are not its own"):
            await waiting
    await asyncio.wait({task})
    with pytest.raises(HostDied):
        await shared.host.wait_ended(0)
    shared.host._watch.remove(ALICE)  # as the end of the process does, if the task had not begun


class Exited(BaseException):
    """The process would have ended."""


class Nothing(BaseModel):
    """No argument."""


class Leaver(BaseAgent):
    """Ends its process in a read, or in a turn."""

    isolation = "shared"

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        with pytest.raises(Exited):
            os._exit(3)

    @handler(read_only=True)
    async def leave(self, ctx: AgentContext[Any], _: Nothing) -> None:
        with pytest.raises(Exited):
            await asyncio.to_thread(os._exit, 3)


@pytest.mark.parametrize("shared", [Leaver], indirect=True)
async def test_a_read_that_ends_its_process_counts_no_attempt_of_the_turn_beside_it(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(_: int) -> None:
        raise Exited

    monkeypatch.setattr(os, "_exit", leave)
    tell_of_os_exit(Path(shared.config.last_words), running_agent, shared.host.on_exit_call)
    shared.around.may_open.set()
    await shared.activate()
    session = shared.store.session(ALICE.name)
    shared.store.admit(session.session_id, NewMessage(shared.ids.message(1), b"{}", 1))
    message = shared.store.pending(session.session_id)[0].message_id
    shared.host.poke(ALICE)
    await until(lambda: shared.store.message(message).status is MessageStatus.CONSUMED)
    assert shared.store.lease(session.session_id) is not None, "a turn that ends its process pays for it"
    await shared.host.read(ALICE, {"handler": "leave", "input": {}})
    assert shared.store.lease(session.session_id) is None
