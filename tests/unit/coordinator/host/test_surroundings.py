"""Which thread runs the calls of a shared host's workspaces: what may mount one never blocks the other agents."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError
from chronicle.ids import IdSource
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract.writer import Writer
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.history.first_tree import put_first_tree
from chronicle.workspace.port import LayerSpec, TreeRef
from coordinator.host import surroundings
from coordinator.host.host_config import HostConfig
from coordinator.host.host_models import HostModels
from coordinator.host.host_telemetry import HostTelemetry
from coordinator.host.lazy_workspace import LazyWorkspace
from coordinator.host.stores import HostStores
from coordinator.host.surroundings import HostParts, ManyAgents
from podium.address import Address
from podium.agent import BaseAgent
from podium.blocking import at_once
from podium.messages.asking import StoreAsker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from pathlib import Path

    from chronicle.journal.records import Commit, Head, StepWrite
    from chronicle.workspace.port import Workspace
    from podium.blocking import BlockingRunner
    from podium.turn.ports import Environment

ALICE = Address("hello", "alice")
INSTANT: Final = ("begin_turn", "seal", "adopt", "rollback", "close")
"""What does not open an unopened workspace."""


class Noting(LazyWorkspace):
    """Notes the thread of each call, and of its opening."""

    def __init__(self, base: TreeRef, tmp_path: Path, blobs: MemoryBlobStore) -> None:
        super().__init__(base, 1, self._open_noting)
        self._tmp_path = tmp_path
        self._blobs = blobs
        self.threads: dict[str, threading.Thread] = {}

    def _open_noting(self, base: TreeRef, turn: int) -> Workspace:
        self.threads["open"] = threading.current_thread()
        spec = LayerSpec("w", self._tmp_path / "layers", base, 1, turn)
        return open_dir_workspace(spec, self._blobs, self._tmp_path / "files", SystemClock()).workspace

    def begin_turn(self, turn: int) -> None:
        self.threads["begin_turn"] = threading.current_thread()
        super().begin_turn(turn)

    def seal(self) -> TreeRef:
        self.threads["seal"] = threading.current_thread()
        return super().seal()

    def adopt(self, ref: TreeRef) -> None:
        self.threads["adopt"] = threading.current_thread()
        super().adopt(ref)

    def rollback(self) -> None:
        self.threads["rollback"] = threading.current_thread()
        super().rollback()

    def close(self) -> None:
        self.threads["close"] = threading.current_thread()
        super().close()


class SlowStore(SqliteJournalStore):
    """Holds its first commit until it may go on, as a slow disk does, and notes the sizes of its writes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def commit(self, commit: Commit) -> Head:
        self.sizes.append(1)
        self.begun.set()
        assert self.may_go_on.wait(60)
        return super().commit(commit)

    def commit_many(self, writes: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        self.sizes.append(len(writes))
        return super().commit_many(writes)


class Host:
    """The surroundings of a shared host, in this process, and a workspace."""

    def __init__(self, tmp_path: Path) -> None:
        values: dict[str, Any] = {field.name: "" for field in fields(HostConfig)}
        config = HostConfig(**values | {"logs": str(tmp_path), "report_interval_s": 0.0})
        store, ids, blobs = SlowStore(tmp_path / "journal.db"), IdSource(), MemoryBlobStore()

        async def nothing(_: object) -> None:
            pass

        asker = StoreAsker(store, blobs, ids, at_once, nothing)
        telemetry = HostTelemetry(config, nothing)
        clock = SystemClock()
        models = HostModels(tmp_path / "models.sock", ids, clock)
        parts = HostParts(
            config, HostStores(store, blobs, asker, at_once), clock, ids, lambda: None, lambda: None, models, telemetry
        )
        self.store = store
        self._around = ManyAgents(parts, BaseAgent, "hello")
        self.run: BlockingRunner = self.enter(ALICE).run_blocking
        self.first = put_first_tree(blobs, 1)
        self.workspace = Noting(self.first, tmp_path, blobs)

    def enter(self, address: Address) -> Environment:
        return self._around.enter(address, {}, unclean=False)

    def close(self) -> None:
        self._around.close()
        self.store.close()


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Host]:
    """One whose log and variables leave this process alone."""

    def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(surroundings, "forbid_workspace_variable", nothing)
    monkeypatch.setattr(surroundings, "log_to", nothing)
    host = Host(tmp_path)
    yield host
    if "close" not in host.workspace.threads:
        host.workspace.close()
    host.close()


async def use_without_files(host: Host) -> None:
    workspace, run = host.workspace, host.run
    await run(workspace.begin_turn, 2)
    await run(workspace.adopt, await run(workspace.seal))
    await run(workspace.rollback)
    await run(workspace.close)


async def test_what_does_not_open_an_unopened_workspace_runs_on_the_loop(host: Host) -> None:
    await use_without_files(host)
    for call in INSTANT:
        assert host.workspace.threads[call] is threading.current_thread(), call
    assert not host.workspace.is_open


CALLS: Final[dict[str, Callable[[Host], Awaitable[object]]]] = {
    "move_to": lambda host: host.run(host.workspace.move_to, TreeRef(host.first.oplog_id, host.first.tree_id)),
    "history": lambda host: host.run(host.workspace.history, "a"),
    "at": lambda host: host.run(host.workspace.at, "a", 1),
}


@pytest.mark.parametrize("call", CALLS)
async def test_what_opens_it_runs_in_a_thread(host: Host, call: str) -> None:
    with pytest.raises(ChronicleError):  # there is no such tree or file
        await CALLS[call](host)
    assert host.workspace.is_open
    assert host.workspace.threads["open"].name.startswith("workspace")


async def test_calls_of_an_opened_one_run_in_threads(host: Host) -> None:
    await host.run(lambda: host.workspace.root)
    await use_without_files(host)
    for call in INSTANT:
        assert host.workspace.threads[call].name.startswith("workspace"), call


async def test_its_end_waits_in_a_thread_while_another_opens_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    opening, may_open = threading.Event(), threading.Event()
    open_it = host.workspace._open_it

    def slowly(base: TreeRef, turn: int) -> Workspace:
        opening.set()
        assert may_open.wait(60)
        return open_it(base, turn)

    monkeypatch.setattr(host.workspace, "_open_it", slowly)
    using = asyncio.create_task(asyncio.to_thread(lambda: host.workspace.root))
    assert await asyncio.to_thread(opening.wait, 60)
    closing = asyncio.create_task(host.run(host.workspace.close))
    may_open.set()
    await asyncio.gather(using, closing)
    assert host.workspace.threads["close"].name.startswith("workspace")


async def test_what_agents_commit_while_the_disk_is_busy_is_one_write(host: Host) -> None:
    writers = [Writer.on(host.store, f"hello/{number}") for number in range(6)]
    committers = [host.enter(Address.parse(writer.session.name)).committer for writer in writers]
    async with asyncio.TaskGroup() as group:
        group.create_task(committers[0].commit(writers[0].commit_of()))
        assert await asyncio.to_thread(host.store.begun.wait, 60)
        for writer, committer in zip(writers[1:], committers[1:], strict=True):
            group.create_task(committer.commit(writer.commit_of()))
        await asyncio.sleep(0)  # each is queued
        host.store.may_go_on.set()
    assert host.store.sizes == [1, 5]
    assert all(verify_session(host.store, writer.session).events == 1 for writer in writers)
