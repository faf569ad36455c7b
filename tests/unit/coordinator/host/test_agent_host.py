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

from chronicle.errors import Unavailable
from chronicle.journal.committer import DirectCommitter
from chronicle.journal.records import NewMessage
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec
from coordinator.channel import pack
from coordinator.host import agent_host
from coordinator.host.agent_host import AgentHost
from coordinator.host.host_config import HostConfig
from coordinator.host.loop_watch import LoopWatch
from coordinator.host.node.process_marks import ProcessMark
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.blocking import at_once
from podium.errors import AgentAsleep
from podium.turn.ports import Environment
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from chronicle.canonical import JsonObject
    from chronicle.journal.records import Lease
    from chronicle.workspace.port import Opened
    from coordinator.telemetry.reports import Report
    from podium.turn.ports import WorkspaceRequest

ALICE, BOB = Address("thinker", "alice"), Address("thinker", "bob")


class Thinker(BaseAgent):
    """Tells whose task makes it."""

    owners: ClassVar[list[Address | None]] = []
    watch: ClassVar[LoopWatch]

    class State(DeltaState):
        count: int = 0

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.owners.append(self.watch._owners.get(task))


class Speaker(BaseAgent):
    """Looks whether its first text has reached its reader, before it lets anything else run."""

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

    def __init__(self, host: AgentHost, directory: Path) -> None:
        self._host = host
        self._directory = directory
        self.may_open = asyncio.Event()
        self.opening = 0
        self.left: list[tuple[Address, bool]] = []

    def enter(self, address: Address, config: JsonObject, *, unclean: bool) -> Environment:
        del address, config, unclean
        host = self._host
        committer = DirectCommitter(host._store)
        return Environment(host._store, host._blobs, committer, host._clock, host._ids, self._open, run_store=at_once)

    async def leave(self, address: Address, *, evicted: bool) -> None:
        self.left.append((address, evicted))

    def close(self) -> None:
        pass

    async def _open(self, request: WorkspaceRequest) -> Opened:
        self.opening += 1
        await self.may_open.wait()
        name = request.address.workspace_id
        spec = LayerSpec(name, self._directory / "layers", request.base, request.epoch, request.turn)
        return open_dir_workspace(spec, self._host._blobs, self._directory / "files", self._host._clock)


class Shared:
    """A shared host, in this process."""

    def __init__(self, directory: Path) -> None:
        config = HostConfig(
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
            shared_host_bytes=1 << 30,
            block_limit_s=60.0,
            last_words=str(directory / "words"),
            deliveries=str(directory / "s"),
            report_interval_s=0,
        )

        async def report(_: Report) -> None:
            pass

        async def wake(_: Address) -> None:
            pass

        self.host = AgentHost(config, lambda: None, report, wake, lambda _: None)
        self.around = Around(self.host, directory)
        self.host._class = Thinker
        self.host._surroundings = self.around
        self.host._watch.loop_watch = Thinker.watch = LoopWatch(self.host._clock)

    def lease(self) -> Lease:
        host, now_ms = self.host, self.host._clock.now_ms()
        session = host._store.ensure_session(ALICE.name, host._ids.session(now_ms), host._ids.branch(now_ms), now_ms)
        return host._store.acquire_lease(session.session_id, "host_1", now_ms, 60_000)

    def activate(self) -> asyncio.Task[int]:
        return asyncio.create_task(self.host.activate(ALICE, self.lease(), unclean=False))

    async def end(self) -> None:
        self.around.may_open.set()
        self.host.stop_all()
        await until(lambda: not self.host._running and not self.host._activating)
        self.host._deliveries.close()
        await until(lambda: self.host._watch._thread is None)
        asyncio.get_running_loop().set_task_factory(None)
        self.host._store.close()
        self.host._blobs.close()


@pytest.fixture
async def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Shared]:
    def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(ProcessMark, "put_on", nothing)
    monkeypatch.setattr(agent_host, "set_workspace_variable", nothing)
    monkeypatch.setattr(agent_host, "log_to", nothing)
    Thinker.owners.clear()
    host = Shared(tmp_path)
    yield host
    await host.end()


async def test_what_a_class_does_as_it_is_activated_is_its_agents(shared: Shared) -> None:
    shared.around.may_open.set()
    assert await shared.activate() == 0
    assert Thinker.owners == [ALICE]
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
    assert not shared.host._watch._leases, "its lease is renewed no more"
    await shared.activate()
    assert shared.host.runs(ALICE)


async def test_agents_that_block_their_threads_do_not_keep_others_from_asking(shared: Shared) -> None:
    """``asyncio.to_thread`` is the agents': their calls may block all of its threads."""
    loop, may_go_on = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    blocked = loop.run_in_executor(None, may_go_on.wait, 60)
    store, ids = shared.host._store, shared.host._ids
    question = NewMessage(ids.message(0), b"{}", 0, "key")
    asking = asyncio.create_task(shared.host._asker.ask(BOB, ALICE, question, print))
    await until(lambda: [store.pending(session.session_id) for session in store.sessions(ALICE.name)] not in ([], [[]]))
    assert not blocked.done()
    asking.cancel()
    may_go_on.set()
    assert await blocked


async def test_the_first_text_of_a_turn_has_gone_out_when_its_code_goes_on(shared: Shared) -> None:
    """Code that does not wait keeps the event loop; what it said before must not wait for it."""
    Speaker.heard.clear()
    shared.around.may_open.set()
    shared.host._class = Speaker
    path = Path(shared.host._config.deliveries)
    await shared.host._deliveries.start(path)
    await shared.activate()
    store, ids = shared.host._store, shared.host._ids
    (session,) = store.sessions(ALICE.name)
    receipt = store.admit(session.session_id, NewMessage(ids.message(0), b"{}", 0, "key"), 10)
    with socket.socket(socket.AF_UNIX) as Speaker.reader:
        Speaker.reader.connect(os.fspath(path))
        about = {"agent": str(ALICE), "message_id": receipt.message_id, "position": receipt.position, "offer": None}
        Speaker.reader.sendall(pack({"id": 1, **about}))
        Speaker.reader.setblocking(False)
        await until(lambda: shared.host._agents[ALICE].activation.turn == 1)
        assert b'"begun "' in Speaker.heard[0]
