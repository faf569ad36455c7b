"""Power is lost in the middle of an agent's turn: the next activation keeps the tree and goes on from the last commit.

The agent's workspace is a layer on a recorded disk (`tests.crash.power`). In the middle of its second turn, after each
thing it does, the disk as a loss of power may leave it is made; the journal and the blobs are copied as they are, for
each commit of theirs is durable when it returns. Another activation then takes over with what was left.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.canonical import decode, encode
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from chronicle.journal.committer import GroupCommitter
from chronicle.journal.records import NewMessage
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.system import boot as system_boot
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.api.workspace import ApiWorkspace, open_api_workspace
from chronicle.workspace.layer.disk import files
from chronicle.workspace.port import LayerSpec, Opened, TreeRef
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.blocking import at_once
from podium.turn.activation import Activation, Step
from podium.turn.ports import Environment, WorkspaceRequest
from tests.crash.power import Disk, NoSyncOs, RecordingOs, RecordingPath, opened
from tests.crash.workspace.test_layer_power import MODULES

ADDRESS = Address("writer", "test")
COMMITTED = {"committed": b"first" * 1000, "large": b"second" * 20_000}
SYNCED = {"committed": b"first" * 1000 + b"and more", "synced": b"third" * 500, "large": b"second" * 20_000}


class Presented(ApiWorkspace):
    """What the agent has; activations want a root, which nothing here uses."""

    root = Path("/nonexistent")


class Writer(BaseAgent):
    """Writes files turn after turn, and lets somebody look after each thing it did."""

    workspace: ClassVar[Presented]
    look: ClassVar[Any]

    class State(DeltaState):
        turns: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.turns += 1
        workspace, look = type(self).workspace, type(self).look
        if message["turn"] == 1:
            for path, content in COMMITTED.items():
                workspace.write(path, content)
            return
        for path, content in SYNCED.items():
            if path != "large":
                workspace.write(path, content)
                look(synced=False)
        layer = workspace._layer
        for path in ("committed", "synced"):
            node = layer.resolve(path.encode())
            handle = layer.open(cast("Any", node))
            layer.fsync(handle.node)
            layer.release(handle)
        look(synced=True)
        workspace.write("unsynced", b"fourth" * 3000)
        look(synced=True)
        workspace.rename("unsynced", "renamed")
        look(synced=True)
        with workspace.open("large", "r+b") as file:
            file.seek(50_000)
            file.write(b"changed" * 100)
        look(synced=True)


class Home:
    """A directory with a journal, blobs and layers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = SqliteJournalStore(directory / "journal.db")
        self.blobs = PackBlobStore(f"file://{directory}/blobs")

    async def activation(self, layers: Path) -> Activation:
        store, ids, clock = self.store, IdSource(), SystemClock()
        now_ms = clock.now_ms()
        session = store.ensure_session(str(ADDRESS), ids.session(now_ms), ids.branch(now_ms), now_ms)
        before = store.lease(session.session_id)
        lease = store.acquire_lease(session.session_id, "a process", now_ms, 60_000, takeover=True)

        async def open_workspace(request: WorkspaceRequest) -> Opened:
            spec = LayerSpec("writer", layers, request.base, request.epoch, request.turn)
            made = open_api_workspace(spec, self.blobs, clock)
            made.__class__ = Presented
            Writer.workspace = cast("Presented", made)
            return Opened(cast("Any", made), made.recovered)

        environment = Environment(
            store,
            self.blobs,
            GroupCommitter(store),
            clock,
            ids,
            open_workspace,
            run_blocking=at_once,
            run_store=at_once,
        )
        activation = Activation(Writer, ADDRESS, lease, environment)
        await activation.start(unclean=before is not None)
        return activation

    def admit(self, turn: int) -> None:
        (session,) = self.store.sessions()
        body = encode({"turn": turn})
        self.store.admit(session.session_id, NewMessage(IdSource().message(turn), body, turn, str(turn)))

    def last_failure(self) -> dict[str, Any]:
        (session,) = self.store.sessions()
        failed = list(self.store.events(session.main_branch_id, types=["turn.failed"]))
        return cast("dict[str, Any]", decode(failed[-1].payload or b""))

    def close(self) -> None:
        self.store.close()
        self.blobs.close()


async def test_power_is_lost_in_the_middle_of_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("before")
    monkeypatch.setattr(system_boot, "_BOOT_ID", boot)
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk")
    recorder = RecordingOs(disk)
    generator = random.Random(7)
    cases: list[tuple[Path, bool]] = []
    home_path = tmp_path / "home"
    home_path.mkdir()

    def look(*, synced: bool) -> None:
        for _ in range(4):
            target = tmp_path / f"case{len(cases)}"
            shutil.copytree(home_path, target)
            disk.lose_power(generator, target / "layers")
            cases.append((target, synced))

    Writer.look = staticmethod(look)
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "os", recorder)
        patch.setattr(files, "open", opened(recorder), raising=False)
        patch.setattr(RecordingPath, "disk", disk)
        home = Home(home_path)
        activation = await home.activation(RecordingPath(disk.root))
        for turn in (1, 2):
            home.admit(turn)
            assert await activation.handle_next() is Step.HANDLED
        disk.check()
        await activation.stop()
        home.close()

    assert len(cases) == 24
    boot.write_text("after")
    for module in MODULES:
        monkeypatch.setattr(module, "os", NoSyncOs())
    for target, synced in cases:
        await take_over(target, synced=synced)


async def take_over(target: Path, *, synced: bool) -> None:
    home = Home(target)
    activation = await home.activation(target / "layers")
    workspace = Writer.workspace
    assert cast("Any", activation.state).turns == 1
    assert {path: workspace.read(path) for path, _ in workspace.walk()} == COMMITTED
    failure = home.last_failure()
    if synced:
        kept = files_in(home.blobs, TreeRef(failure["tree_id"], failure["oplog_id"]).tree_id)
        assert {path: kept[path] for path in ("committed", "synced")} == {
            path: SYNCED[path] for path in ("committed", "synced")
        }
        large = cast("bytes", kept["large"])
        assert len(large) == len(COMMITTED["large"])
        assert set(kept) - {"committed", "synced", "large"} <= {"unsynced", "renamed"}
    Writer.look = staticmethod(lambda *, synced: None)
    while await activation.handle_next() is Step.RETRY:
        pass
    assert cast("Any", activation.state).turns == 2
    assert workspace.read("synced") == SYNCED["synced"]
    await activation.stop()
    home.close()
