"""What the turn's crash tests kill: a process that wakes an agent, handles its messages and lets it sleep.

One home lives through all deaths: what one process left, the next one goes on from. All is real but the host around
it: the activation, SQLite, blobs in files, a directory as workspace. Every message that was answered is noted outside
of what is under test. ::

    python -m tests.crash.turn.turn_work writes DIRECTORY ROUNDS     ended right before each write of each kind of turn
    python -m tests.crash.turn.turn_work kills DIRECTORY SEED ROUNDS  killed from outside, at any time
    python -m tests.crash.turn.turn_work pauses DIRECTORY URL  ended before and after each call that writes the journal

The first needs ``syscalls.c``, built and preloaded. The last has messages whose turns pause, in a journal at a URL.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import structlog

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.canonical import decode, encode
from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from chronicle.journal.committer import GroupCommitter
from chronicle.journal.opening import open_journal
from chronicle.journal.records import MessageStatus, NewMessage
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.verify import verify_session
from chronicle.workspace.content import content
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec, Opened
from chronicle.workspace.trees import tree
from podium.address import Address
from podium.agent import AgentContext, BaseAgent, Retention
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import AgentRecord, read_agent
from podium.artifacts.artifacts import list_artifacts, read_artifact
from podium.errors import RunNotPaused, UnknownAgent
from podium.events import TURN_PAUSED
from podium.history.step_record import open_pause
from podium.messages.answers import Answer, answer_run
from podium.turn.activation import Activation, Step
from podium.turn.ports import Environment, WorkspaceRequest

if TYPE_CHECKING:
    from chronicle.ids import MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Session

ADDRESS = Address("clerk", "test")
KINDS = ("plain", "delete", "large", "raises", "moves", "pauses")
WRITES = ("acquire_lease", "admit", "commit", "commit_many", "end_pause", "ensure_session", "put_step", "release_lease")
"""Calls of a journal that write, of those that a life makes."""
KILLED = 77
"""What the preloaded library ends a process with."""
SMALL = 1_000
"""Bytes up to which an artifact is handed out from memory."""
_NEVER_PARKED = 1_000_000


def files_after(log: list[int]) -> dict[str, bytes]:
    """The files that an agent must have after it handled these messages."""
    files: dict[str, bytes] = {}
    for number in log:
        files["log.txt"] = files.get("log.txt", b"")[-200:] + b"%d\n" % number
        match KINDS[number % len(KINDS)]:
            case "delete":
                files.pop("large.bin", None)
            case "large":
                files["large.bin"] = random.Random(number).randbytes(150_000)
            case "moves":
                files[f"folder/{number % 3}.txt"] = b"number %d" % number
    return files


def handed_out(number: int) -> bytes | None:
    """The artifact that the agent must hand out for a message, if any: a file of its, or small bytes."""
    match KINDS[number % len(KINDS)]:
        case "large":
            return random.Random(number).randbytes(150_000)
        case "moves":
            return b"moved %d" % number
    return None


class Clerk(BaseAgent):
    """Writes down which messages it handled: in state, in files and in its answers."""

    max_attempts = _NEVER_PARKED
    retention = Retention(turns=3)

    class State(DeltaState):
        log: list[int] = []
        first: dict[str, int] = {}
        answers: dict[str, int] = {}

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        number = message["number"]
        log = ctx.workspace / "log.txt"
        log.write_bytes((log.read_bytes() if log.exists() else b"")[-200:] + b"%d\n" % number)
        match KINDS[number % len(KINDS)]:
            case "delete":
                (ctx.workspace / "large.bin").unlink(missing_ok=True)
            case "large":
                (ctx.workspace / "large.bin").write_bytes(random.Random(number).randbytes(150_000))
            case "raises" if number not in TRIED:
                TRIED.add(number)
                ctx.state.log.clear()
                (ctx.workspace / "rubbish").write_text("to be rolled back")
                raise ValueError("as told")
            case "moves":
                (ctx.workspace / "folder").mkdir(exist_ok=True)
                (ctx.workspace / "fresh").write_bytes(b"number %d" % number)
                (ctx.workspace / "fresh").rename(ctx.workspace / "folder" / f"{number % 3}.txt")
            case "pauses":
                answer = await ctx.decide({"type": "integer"}, reason="who answers?", timeout="1h")
                ctx.state.answers[str(number)] = answer
        if (wanted := handed_out(number)) is not None:
            large = ctx.workspace / "large.bin"
            await ctx.add_artifact(f"{number}.bin", large if len(wanted) > SMALL else wanted)
        ctx.state.log.append(number)
        ctx.state.first.setdefault(KINDS[number % len(KINDS)], number)
        await ctx.send_message(f"did {number}")


TRIED: set[int] = set()
"""Messages that were tried in this process."""


@dataclass(frozen=True)
class Home:
    """What survives the processes."""

    directory: Path
    url: str = ""
    """Of its journal, if that is elsewhere."""
    kind: str = ""
    """Of all messages; by default of each kind one after the other."""

    @property
    def kept(self) -> Path:
        """What is under test: all writes below it count."""
        return self.directory / "kept"

    def store(self) -> JournalStore:
        """Open the journal."""
        return open_journal(self.url) if self.url else SqliteJournalStore(self.kept / "journal.db")

    def blobs(self) -> PackBlobStore:
        """Open the blobs."""
        return PackBlobStore(f"file://{self.kept}/blobs")

    def open_workspace(self, request: WorkspaceRequest) -> Opened:
        """Open the agent's directory."""
        spec = LayerSpec(request.address.workspace_id, self.kept / "layers", request.base, request.epoch, request.turn)
        return open_dir_workspace(spec, self.blobs(), self.kept / "files", SystemClock())

    def note(self, name: str, number: int) -> None:
        """Note what somebody outside was told."""
        with (self.directory / name).open("ab", buffering=0) as file:
            file.write(b"%d\n" % number)

    def noted(self, name: str) -> list[int]:
        """Return what was noted."""
        path = self.directory / name
        return [int(line) for line in path.read_bytes().split()] if path.exists() else []


class Stopping:
    """A journal that ends the process before or after one of the calls that write it.

    Args:
        at: 1 for before the first one, 2 for after it, and so on; 0 for never.
    """

    def __init__(self, store: JournalStore, at: int) -> None:
        self._store = store
        self._left = at

    def __getattr__(self, name: str) -> Any:
        """Return a method of the journal."""
        method = getattr(self._store, name)
        if name not in WRITES:
            return method

        def write(*args: Any, **options: Any) -> Any:
            self._pass()
            done = method(*args, **options)
            self._pass()
            return done

        return write

    def _pass(self) -> None:
        self._left -= 1
        if not self._left:
            os._exit(KILLED)


async def life(home: Home, messages: int, *, sleep: bool = True, stop_at: int = 0) -> None:
    """Wake the agent, check what it woke with, send it messages and handle all that wait, and let it sleep.

    Args:
        stop_at: see `Stopping`.
    """
    store, ids, clock = cast("JournalStore", Stopping(home.store(), stop_at)), IdSource(), SystemClock()
    now_ms = clock.now_ms()
    session = store.ensure_session(str(ADDRESS), ids.session(now_ms), ids.branch(now_ms), now_ms)
    before = store.lease(session.session_id)
    lease = store.acquire_lease(session.session_id, f"process {os.getpid()}", now_ms, 60_000, takeover=True)

    async def opened(request: WorkspaceRequest) -> Opened:
        return await asyncio.to_thread(home.open_workspace, request)

    environment = Environment(store, home.blobs(), GroupCommitter(store), clock, ids, opened, most_replayed_turns=5)
    activation = Activation(Clerk, ADDRESS, lease, environment)
    await activation.start(unclean=before is not None)
    log = list(cast("Any", activation.state).log)
    assert files_in(activation.workspace.root) == files_after(log), "the directory is not that of the state"
    unsure = sorted(set(home.noted("sent")) - set(home.noted("admitted")))
    first = max((*home.noted("sent"), -1)) + 1
    while home.kind not in {"", KINDS[first % len(KINDS)]}:
        first += 1
    for number in (*unsure, *range(first, first + messages)):
        home.note("sent", number)
        store.admit(
            session.session_id, NewMessage(ids.message(now_ms), encode({"number": number}), now_ms, str(number))
        )
        home.note("admitted", number)
    while message := next(iter(store.pending(session.session_id, 1)), store.paused_message(session.session_id)):
        number = cast("Any", decode(message.body or b""))["number"]
        if message.status is MessageStatus.PAUSED:
            home.note(f"decided {number}", await answer(store, session, message.message_id))
        while await activation.handle_next() is Step.RETRY:
            pass
        if store.message(message.message_id).status is MessageStatus.CONSUMED:
            home.note("answered", number)
    if sleep:
        await activation.stop()
        store.release_lease(session.session_id, lease.epoch)


async def answer(store: JournalStore, session: Session, run_id: MessageId) -> int:
    """Answer a paused turn twice at once, and return the answer that was taken."""

    def taken(value: int) -> bool:
        try:
            answer_run(store, session, run_id, Answer(value, by=None), SystemClock().now_ms())
        except RunNotPaused:
            return False
        return True

    answers = (os.getpid(), -os.getpid())
    found = await asyncio.gather(*(asyncio.to_thread(taken, value) for value in answers))
    assert sorted(found) == [False, True], "two answers were taken, or none"
    return answers[found.index(True)]


def files_in(root: Path) -> dict[str, bytes]:
    """The files in a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@dataclass(frozen=True)
class Left:
    """What a death left."""

    turns: int = 0
    waiting: int = 0
    """Messages that are admitted and not handled."""


def check(home: Home) -> Left:
    """Check what a death left."""
    if not home.url and not (home.kept / "journal.db").exists():
        assert not home.noted("admitted")
        return Left()
    store = home.store()
    try:
        if not store.sessions():
            assert not home.noted("admitted")
            return Left()
        session = store.session(str(ADDRESS))
        report = verify_session(store, session)
        assert report.ok, str(report.damage)
        paused = store.paused_message(session.session_id)
        is_open = [open_pause(step.body) is not None for step in store.steps_of_session(session.session_id)]
        assert any(is_open) >= (paused is not None), "a paused turn waits for nothing"
        assert len(store.reminders(session.session_id)) == (paused is not None), "the end of a pause is not that of it"
        waiting = [*store.messages(session.session_id, MessageStatus.PENDING), *([paused] if paused else [])]
        messages = {cast("Any", decode(message.body))["number"] for message in waiting if message.body is not None}
        pauses = [
            cast("Any", decode(event.payload or b""))["message_id"]
            for event in store.events(session.main_branch_id, types=(TURN_PAUSED,))
        ]
        assert len(pauses) == len(set(pauses)), "a turn has paused twice"
        blobs = home.blobs()
        try:
            record = read_agent(store, blobs, ADDRESS)
        except UnknownAgent:
            assert not home.noted("answered")
            return Left(0, len(messages))
        log = cast("list[int]", record.state["log"])
        assert log == sorted(set(log)), "a message was handled twice, or out of order"
        assert set(home.noted("answered")) <= set(log), "an answered turn is gone"
        assert set(home.noted("admitted")) <= set(log) | messages, "an admitted message is gone"
        assert not messages & set(log), "a handled message still waits"
        answers = cast("dict[str, int]", record.state["answers"])
        assert set(answers) == {str(number) for number in log if KINDS[number % len(KINDS)] == "pauses"}
        for number, answer in answers.items():
            assert home.noted(f"decided {number}") in ([], [answer]), "more than one answer was taken"
        assert len(store.messages(session.session_id, MessageStatus.CONSUMED)) == len(log) == record.turn
        kept = transcript(store, record)
        assert kept == [(number, f"did {number}") for number in log[len(log) - len(kept) :]]
        assert len(kept) >= min(len(log), 3), "more was dropped than the agent's retention lets go"
        assert tree_files(blobs, record) == files_after(log), "the tree is not that of the state"
        wanted = [(f"{number}.bin", data) for number, _ in kept if (data := handed_out(number)) is not None]
        made = [(each.name, read_artifact(blobs, each)) for each in list_artifacts(store, blobs, ADDRESS)]
        assert made == wanted, "what was handed out is not what the state says"
        return Left(record.turn, len(messages))
    finally:
        store.close()


def transcript(store: JournalStore, record: AgentRecord) -> list[tuple[int, str]]:
    """The messages and their answers as the journal has them still."""
    asked: list[int] = []
    said: list[str] = []
    for event in store.events(record.head.branch_id, types=("user_message", "assistant_message")):
        payload = cast("Any", decode(event.payload or b""))
        if event.type == "user_message":
            asked.append(payload["message"]["number"])
        else:
            said.append(payload["text"])
    return list(zip(asked, said, strict=True))


def tree_files(blobs: PackBlobStore, record: AgentRecord) -> dict[str, bytes]:
    """The files of an agent's committed tree."""
    if record.tree is None:
        return {}
    return {
        path.decode(): content.read(blobs, entry.content)
        for path, entry in tree.walk(blobs, record.tree.tree_id)
        if entry.content is not None
    }


def in_child(home: Home, stop_before: int, messages: int, *, sleep: bool, stop_at: int = 0) -> int:
    """Start a process that lives a life, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if stop_before:
            ctypes.CDLL(None).arm(bytes(home.kept), ctypes.c_long(stop_before), None)
        asyncio.run(life(home, messages, sleep=sleep, stop_at=stop_at))
        code = 0
    except Exception:  # noqa: BLE001 - a fault of what is tested: the parent fails and shows it
        traceback.print_exc()
    finally:
        os._exit(code)


def end_before_each_write(home: Home, rounds: int) -> Iterator[int]:
    """Let processes die one write further each, until one ends by itself; several times over, with other messages."""
    left = Left()
    for number in range(rounds):
        stop, code = 0, KILLED
        while code == KILLED:
            stop += 1
            pid = in_child(home, stop, 0 if left.waiting else 1, sleep=bool(number % 2))
            code = exit_code_of(pid)
            assert code in (0, KILLED), f"ended with {code} at write {stop} of round {number}"
            left = check(home)
            yield left.turns


def end_around_each_call(home: Home) -> Iterator[int]:
    """Let a process die around each call that writes the journal, with a message each, which another one ends."""
    stop, code = 0, KILLED
    while code == KILLED:
        stop += 1
        code = exit_code_of(in_child(home, 0, 1, sleep=True, stop_at=stop))
        assert code in (0, KILLED), f"ended with {code} at call {stop}"
        left = check(home)
        if left.waiting:
            assert exit_code_of(in_child(home, 0, 0, sleep=True)) == 0
            assert not check(home).waiting
        yield left.turns


def exit_code_of(pid: int) -> int:
    """Wait for a process, and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_at_any_time(home: Home, seed: int, rounds: int) -> Iterator[int]:
    """Kill processes from outside at any time of their lives, once one has shown how long they are."""
    generator = random.Random(seed)
    longest_s = None
    for _ in range(rounds):
        began_s = time.monotonic()
        pid = in_child(home, 0, 30, sleep=True)
        ended = os.pidfd_open(pid)
        select.select([ended], [], [], longest_s and generator.random() * longest_s)
        os.close(ended)
        longest_s = longest_s or time.monotonic() - began_s
        os.kill(pid, signal.SIGKILL)
        code = exit_code_of(pid)
        assert code in (0, -signal.SIGKILL), f"ended with {code}"
        yield check(home).turns


def main(mode: str, directory: str, *options: str) -> None:
    """Do what the command line asks; print the turns after each death."""
    structlog.configure(processors=[_drop])
    gc.freeze()  # a child's collections do not copy what it has from here
    home = Home(Path(directory))
    home.kept.mkdir()
    if mode == "pauses":
        print(*end_around_each_call(replace(home, url=options[0], kind="pauses")))
        return
    if mode == "writes":  # in the other one the time that a sync takes matters
        ctypes.CDLL(None).skip_syncs()
    deaths = end_before_each_write if mode == "writes" else kill_at_any_time
    print(*cast("Any", deaths)(home, *map(int, options)))


def _drop(_: object, __: str, ___: object) -> dict[str, Any]:
    raise structlog.DropEvent


if __name__ == "__main__":
    main(*sys.argv[1:])
