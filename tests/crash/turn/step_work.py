"""What `test_step_deaths.py` kills: processes that handle one message whose turn has thirty steps with files.

    python -m tests.crash.turn.step_work DIRECTORY mount|directory

Each process kills itself with SIGKILL after one more step than the one before it, and the last one ends the turn. What
is not needed any more is collected after each death. In the middle of the turn the node with the layer is lost. The
turn is compared with that of a process that was not killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import structlog

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.canonical import decode, encode
from chronicle.clock import SystemClock
from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.ids import IdSource
from chronicle.journal.committer import GroupCommitter
from chronicle.journal.records import NewMessage
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.verify import verify_session
from chronicle.workspace.committed.workspace import CommittedWorkspace
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.gc_roots import layer_refs
from chronicle.workspace.port import LayerSpec, Opened
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent
from podium.history.reachability import reachable_blobs
from podium.turn.activation import Activation, Step
from podium.turn.ports import Environment, WorkspaceRequest

ADDRESS = Address("stepped", "test")
STEPS = 30
LOST = (9, 20)
"""The deaths with which the layer is lost."""


class Stepped(BaseAgent):
    """Keeps a file open over all its steps, and changes others in them and between them."""

    class State(DeltaState):
        done: list[int] = []
        between: int = 0

    max_attempts = 2 * STEPS
    dies_after: ClassVar[int] = STEPS
    """The step after which the process is killed."""
    ran: ClassVar[Path]
    """Takes the numbers of the steps that ran."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        with (ctx.workspace / "log").open("ab", buffering=0) as log:
            for number in range(message["steps"]):
                ctx.state.between += 1
                found = await ctx.step("work", lambda number: work(ctx, self.ran, number), number)
                assert found == number * number
                if number == self.dies_after:
                    os.kill(os.getpid(), signal.SIGKILL)
                log.write(b"after %d\n" % number)
        await ctx.send_message(f"{len(ctx.state.done)} done")


def work(ctx: AgentContext[Any], ran: Path, number: int) -> int:
    """Change state and files in one step, and note that it ran."""
    with ran.open("a") as notes:
        notes.write(f"{number}\n")
    root = ctx.workspace
    ctx.state.done.append(number)
    folder = root / f"d{number % 4}"
    folder.mkdir(exist_ok=True)
    (folder / f"f{number}").write_text(f"{number}\n" * 1000)
    (root / "changed").write_bytes(bytes([number]) * 70_000)
    if number % 5 == 4:
        (root / f"d{(number + 2) % 4}").rename(root / f"moved {number}")
    if number % 7 == 6:
        (root / "changed").unlink()
    return number * number


@dataclass(frozen=True)
class Home:
    """What survives the processes."""

    directory: Path
    zygote: Path | None
    """The socket of the mount service; ``None`` for plain directories."""

    @property
    def blobs_url(self) -> str:
        """The address of the blob store."""
        return f"file://{self.directory}/blobs"

    @property
    def layers(self) -> Path:
        """The layers of the node."""
        return self.directory / "layers"

    @property
    def ran(self) -> Path:
        """The numbers of the steps that ran."""
        return self.directory / "ran"

    def store(self) -> SqliteJournalStore:
        """Open the journal."""
        return SqliteJournalStore(self.directory / "journal.db")

    def open_workspace(self, request: WorkspaceRequest) -> Opened:
        """Open the agent's workspace."""
        spec = LayerSpec(request.address.workspace_id, self.layers, request.base, request.epoch, request.turn)
        if self.zygote is None:
            return open_dir_workspace(spec, PackBlobStore(self.blobs_url), self.directory / "files", SystemClock())
        return open_fuse_workspace(
            self.zygote, spec, self.blobs_url, self.zygote.parent / "m" / self.directory.name, with_caller=True
        )

    def collect(self) -> None:
        """Collect what is not needed at once, as ``gc --now`` does."""
        store, blobs = self.store(), PackBlobStore(self.blobs_url)
        collect(
            self.blobs_url,
            lambda: reachable_blobs(store, blobs, list(layer_refs(self.layers))),
            GcRules(alone=True, keep_from=1.0),
        )
        blobs.close()
        store.close()

    def lose_node(self) -> None:
        """Lose all that the node has of the workspace."""
        for path in (self.layers, self.directory / "files"):
            shutil.rmtree(path, ignore_errors=True)


async def life(home: Home) -> None:
    """Wake the agent, and handle the message to its end."""
    store, ids, clock = home.store(), IdSource(), SystemClock()
    now_ms = clock.now_ms()
    session = store.ensure_session(str(ADDRESS), ids.session(now_ms), ids.branch(now_ms), now_ms)
    before = store.lease(session.session_id)
    lease = store.acquire_lease(session.session_id, f"process {os.getpid()}", now_ms, 60_000, takeover=True)

    async def opened(request: WorkspaceRequest) -> Opened:
        return await asyncio.to_thread(home.open_workspace, request)

    environment = Environment(store, PackBlobStore(home.blobs_url), GroupCommitter(store), clock, ids, opened)
    activation = Activation(Stepped, ADDRESS, lease, environment)
    await activation.start(unclean=before is not None)
    store.admit(session.session_id, NewMessage(ids.message(now_ms), encode({"steps": STEPS}), now_ms, "once"))
    while store.pending(session.session_id, 1):
        assert await activation.handle_next() is not Step.RETRY
    await activation.stop()
    store.release_lease(session.session_id, lease.epoch)


def in_process(home: Home, dies_after: int) -> int:
    """Live in a process, and return its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            Stepped.dies_after, Stepped.ran = dies_after, home.ran
            asyncio.run(life(home))
            code = 0
        except BaseException:  # noqa: BLE001 - the parent fails, and shows it
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def end(home: Home) -> tuple[object, ...]:
    """Return what a turn left: which steps ran, the state, the tree, the versions of some paths."""
    store, blobs = home.store(), PackBlobStore(home.blobs_url)
    session = store.session(str(ADDRESS))
    report = verify_session(store, session)
    assert report.ok, str(report.damage)
    assert not store.steps_of_session(session.session_id)
    record = read_agent(store, blobs, ADDRESS)
    assert record.tree is not None
    (payload,) = [decode(event.payload or b"") for event in store.events(record.head.branch_id) if is_turn(event.type)]
    workspace = CommittedWorkspace(blobs, record.tree)
    versions = [(path, [(one.op, one.hash) for one in workspace.history(path)]) for path in ("changed", "d1/f1")]
    store.close()
    blobs.close()
    assert isinstance(payload, dict)
    return home.ran.read_text().split(), record.state, record.turn, record.tree.tree_id, versions


def is_turn(event_type: str) -> bool:
    return event_type == "turn.committed"


def main(directory: str, kind: str) -> None:
    """Do what the command line asks."""
    structlog.configure(processors=[_drop])
    base = Path(directory)
    zygote = base / "zygote.sock" if kind == "mount" else None
    if zygote is not None:
        launcher.start(zygote, base / "m", base / "log", os.getpid(), few_mounts=True)
    homes = [Home(base / name, zygote) for name in ("whole", "killed")]
    for home in homes:
        home.directory.mkdir()
        home.ran.touch()
    whole, killed = homes
    assert in_process(whole, STEPS) == 0
    for death in range(STEPS):
        code = in_process(killed, death)
        assert code == -signal.SIGKILL, f"process {death} ended with {code}"
        if death in LOST:
            killed.lose_node()
        killed.collect()
    assert in_process(killed, STEPS) == 0
    if zygote is not None:
        launcher.shut_down(zygote)
    assert end(killed) == end(whole)
    assert end(killed)[0] == [str(number) for number in range(STEPS)]
    print("the same")


def _drop(_: object, __: str, ___: object) -> dict[str, Any]:
    raise structlog.DropEvent


if __name__ == "__main__":
    main(*sys.argv[1:])
