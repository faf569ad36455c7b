"""The simulator over thousands of seeds, and that it finds what it is for: journals and ledgers that were broken."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, Unavailable
from chronicle.ids import SessionId
from chronicle.journal.chain import head_after
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import (
    Commit,
    DropReminder,
    Head,
    InboxMessage,
    MessageStatus,
    NewMessage,
    OutboxMessage,
    PauseEnd,
    Receipt,
    Session,
    SetReminder,
    StepWrite,
    StoredStep,
)
from chronicle.journal.sql import branches, reminders
from chronicle.journal.sql.rows import STATUS_CODES
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.workspace.content import content
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec, Opened, TreeRef, Workspace
from chronicle.workspace.trees import tree
from podium.agent_record import AgentRecord
from podium.messages.asking import StoreAsker
from podium.state import to_json
from podium.testing import Broken, Simulator
from podium.testing.simulation.scratch import ScratchWorkspace
from podium.testing.simulator import SimulatedNodes
from podium.turn.journal.ledger import Ledger
from podium.turn.ports import WorkspaceRequest
from podium.turn.runner import TurnRunner
from podium.turn.scope.reminders import Reminders
from podium.turn.scope.replies import Replies
from podium.turn.stream import Frame, StreamHub

ROOT = Path(__file__).parents[2]
PART = 100
PLAIN: Mapping[str, Any] = {}
STEPS: Mapping[str, Any] = {"with_steps": True}
ASKS: Mapping[str, Any] = {"with_asks": True}
"""With processes of several agents."""
PAUSES: Mapping[str, Any] = {"with_pauses": True}
BATCHED = 40
"""Seeds in which commits gather in 13 to 42 batches, whichever the first seed and the kind."""
ENOUGH = 200
"""Seeds within which a broken part must be found: more than three times the longest run of seeds that does not show
one, 56 of 200 for a journal that folds what forks read. `docs/internals/simulator.md` has the rate of each.
`make nightly` runs a hundred thousand others.
"""


def part_of(first: int, kind: Mapping[str, Any] = PLAIN) -> int:
    """Run some seeds, and return how many commits they made."""
    return sum(Simulator(seed, **kind).run().commits for seed in range(first, first + PART))


@pytest.mark.parametrize(
    ("kind", "seeds", "least_commits"),
    [
        (PLAIN, ENOUGH, 5 * ENOUGH),
        (STEPS, ENOUGH // 2, 5 * ENOUGH),
        (ASKS, ENOUGH // 2, 2 * ENOUGH),
        (PAUSES, ENOUGH // 4, 2 * ENOUGH),
    ],
    ids=str,
)
def test_nothing_is_broken_in_hundreds_of_runs(kind: Mapping[str, Any], seeds: int, least_commits: int) -> None:
    runs = [Simulator(seed, **kind).run() for seed in range(seeds)]
    assert sum(run.commits for run in runs) > least_commits
    batches = sum(run.batches for run in runs[:BATCHED])
    assert batches >= BATCHED // 8, "without batches, nothing would be found out about them"


def test_a_message_that_would_steer_a_turn_in_its_replay_loses_nothing() -> None:
    """In this run a message asks to steer an attempt that is being brought to its last recorded step."""
    Simulator(989, with_steps=True).run()


def test_an_activation_whose_turns_another_one_has_folded_is_over_and_nothing_is_lost() -> None:
    """In this run a host without a lease is to cancel a message, and its last commit was folded meanwhile."""
    Simulator(158, with_steps=True).run()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_nothing_is_broken_in_a_hundred_thousand_runs() -> None:
    parts = [
        (first, kind)
        for kind, runs in ((PLAIN, 50_000), (STEPS, 20_000), (ASKS, 15_000), (PAUSES, 15_000))
        for first in range(ENOUGH, ENOUGH + runs, PART)
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        assert all(pool.map(part_of, *zip(*parts, strict=True)))


def test_sqlite_holds_as_memory_does(tmp_path: Path) -> None:
    numbers = itertools.count()
    for seed in range(25):
        Simulator(seed, store=lambda: SqliteJournalStore(tmp_path / f"{next(numbers)}.db")).run()


class Directory(MutableMapping[str, str]):
    """The files of a real directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __getitem__(self, path: str) -> str:
        try:
            return (self.root / path).read_text()
        except FileNotFoundError:
            raise KeyError(path) from None

    def __setitem__(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)

    def __delitem__(self, path: str) -> None:
        try:
            (self.root / path).unlink()
        except FileNotFoundError:
            raise KeyError(path) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.name for path in self.root.iterdir()))

    def __len__(self) -> int:
        return sum(1 for _ in self.root.iterdir())


class Directories(SimulatedNodes):
    """Workspaces that are plain directories."""

    count = 2

    def __init__(self, base: Path) -> None:
        self.base = base
        self.memory = self.blobs = MemoryBlobStore()

    def open(self, node: int, request: WorkspaceRequest) -> Opened:
        home = self.base / f"node{node}"
        name = request.address.workspace_id
        spec = LayerSpec(name, home / "layers", request.base, request.epoch, request.turn)
        return open_dir_workspace(spec, self.memory, home / "files" / name, SystemClock())

    def files(self, workspace: Workspace) -> Directory:
        return Directory(workspace.root)

    def tree(self, ref: TreeRef) -> dict[str, str]:
        return {
            path.decode(): content.read(self.memory, entry.content).decode()
            for path, entry in tree.walk(self.memory, ref.tree_id)
            if entry.content is not None
        }


def test_directories_hold_as_scratch_does(tmp_path: Path) -> None:
    for seed in range(60):
        Simulator(seed, nodes=lambda seed=seed: Directories(tmp_path / str(seed))).run()  # type: ignore[misc]


def test_a_seed_is_the_same_run_in_every_process() -> None:
    def protocol(hash_seed: str) -> str:
        command = [sys.executable, "-m", "podium.testing.simulator", "--seed", "9", "--runs", "3", "--verbose"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    assert protocol("1") == protocol("2")
    assert "commit" in protocol("1")


# -- what must be found ------------------------------------------------------------------------------------------------


class OneByOne(MemoryJournalStore):
    """Writes each commit of a batch by `commit`, and each step by `put_step`, which its subclasses break."""

    def commit_many(self, writes: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        return [self._outcome(write) for write in writes]

    def _outcome(self, write: Commit | StepWrite) -> Head | Exception | None:
        try:
            if isinstance(write, Commit):
                return self.commit(write)
            self.put_step(write.session_id, write.step, write.epoch)
        except ChronicleError as error:
            return error
        return None

    def change(self, statement: str, *values: Any) -> None:
        """Run a statement in a transaction of its own."""
        with self._db.writing() as db:
            db.execute(statement, values)

    def change_reminders(self, session_id: SessionId, changes: Sequence[SetReminder | DropReminder]) -> None:
        with self._db.writing() as db:
            (key,) = db.execute("SELECT key FROM session WHERE session_id = ?", (session_id,)).fetchone()
            reminders.apply(db, key, reminders.prepare(changes))


class NoFence(OneByOne):
    """Takes commits of any epoch."""

    def commit(self, commit: Commit) -> Head:
        lease = self.lease(commit.session_id)
        return super().commit(replace(commit, epoch=lease.epoch if lease else commit.epoch))


class NoHeadCheck(OneByOne):
    """Takes a commit a second time when it comes again under other ids: no compare-and-swap."""

    def commit(self, commit: Commit) -> Head:
        try:
            return super().commit(commit)
        except Exception:
            if (lease := self.lease(commit.session_id)) is None:
                raise
            now = self.head(commit.expected.branch_id)
            events = tuple(replace(event, seq=now.seq + 1 + n) for n, event in enumerate(commit.events))
            return super().commit(replace(commit, expected=now, events=events, epoch=lease.epoch))


class ConsumesLater(OneByOne):
    """Writes a turn, and takes its message from the inbox in a transaction of its own, which may not come."""

    turns = 0

    def commit(self, commit: Commit) -> Head:
        head = super().commit(replace(commit, settled=()))
        ConsumesLater.turns += 1
        if commit.settled and ConsumesLater.turns % 20 == 0:
            raise Unavailable("died between the two")
        for settlement in commit.settled:
            status = MessageStatus(settlement.outcome) if settlement.outcome != "failed" else MessageStatus.PENDING
            self.change(
                "UPDATE inbox SET status = ?, attempts = attempts + ? WHERE message_id = ?",
                STATUS_CODES[status],
                settlement.outcome in {"failed", "parked"},
                settlement.message_id,
            )
        return head


class Forgets(OneByOne):
    """Loses a message now and then."""

    asked = 0

    def pending(self, session_id: Any, limit: int = 100) -> list[InboxMessage]:
        found = list(super().pending(session_id, limit))
        Forgets.asked += 1
        if found and Forgets.asked % 50 == 0:
            self.change("DELETE FROM inbox WHERE message_id = ?", found[0].message_id)
        return found


class StopsHalfWay(MemoryJournalStore):
    """Says that a batch was done of which it did the first half."""

    def commit_many(self, writes: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        done = super().commit_many(writes[: (len(writes) + 1) // 2])
        rest = writes[len(done) :]
        return done + [head_after(each.expected, each.events) if isinstance(each, Commit) else None for each in rest]


class RemindsLater(OneByOne):
    """Writes a turn, and sets its reminders in a transaction of its own, which may not come."""

    turns = 0

    def commit(self, commit: Commit) -> Head:
        head = super().commit(replace(commit, reminders=()))
        RemindsLater.turns += bool(commit.reminders)
        if not commit.reminders or RemindsLater.turns % 5:
            self.change_reminders(commit.session_id, commit.reminders)
        return head


class FiresTwice(OneByOne):
    """Admits the message of a reminder, and moves the reminder in a transaction of its own, which may not come."""

    fires = 0

    def fire_reminder(self, session_id: SessionId, name: str, *more: Any, **others: Any) -> Receipt | None:
        before = next((each for each in self.reminders(session_id) if each.name == name), None)
        receipt = super().fire_reminder(session_id, name, *more, **others)
        FiresTwice.fires += receipt is not None
        if receipt is not None and before is not None and FiresTwice.fires % 5 == 0:
            self.change_reminders(session_id, [SetReminder(name, before.due_ms, before.body)])
        return receipt


class LosesDelayed(OneByOne):
    """Drops the reminder of a delayed message, and puts the message into the outbox later, which may not come."""

    sends = 0

    def send_reminder(self, session_id: SessionId, name: str, due_ms: int, message: OutboxMessage) -> bool:
        LosesDelayed.sends += 1
        if LosesDelayed.sends % 3:
            return super().send_reminder(session_id, name, due_ms, message)
        return self.cancel_reminder(session_id, name)


class StepsWithoutFence(OneByOne):
    """Takes steps of any epoch."""

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        lease = self.lease(session_id)
        super().put_step(session_id, step, lease.epoch if lease else epoch)


class LosesSteps(OneByOne):
    """Says that a step was stored, and does not have it in one case of ten."""

    stored = 0

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        LosesSteps.stored += 1
        if LosesSteps.stored % 10:
            super().put_step(session_id, step, epoch)


class AnswersTwice(OneByOne):
    """Takes an answer to a step that has one, while its message is pending."""

    def end_pause(self, session_id: SessionId, end: PauseEnd, now_ms: int) -> bool:
        if super().end_pause(session_id, end, now_ms):
            return True
        is_there = self.message(end.message_id).status is MessageStatus.PENDING
        self.change(
            "UPDATE step SET body = ? WHERE number = ? AND message = (SELECT id FROM inbox WHERE message_id = ?)",
            end.after,
            end.number,
            end.message_id,
        )
        return is_there


class AnswersLate(OneByOne):
    """Takes an answer after its time, from those who do not look at the clock."""

    def now_ms(self, given_ms: int) -> int:
        return given_ms - 5_000

    def end_pause(self, session_id: SessionId, end: PauseEnd, now_ms: int) -> bool:
        return super().end_pause(session_id, replace(end, until_ms=None), now_ms)


class LosesAnswers(OneByOne):
    """Says that an answer was taken, and has lost it when the message is handled, in one case of three."""

    answers = 0

    def end_pause(self, session_id: SessionId, end: PauseEnd, now_ms: int) -> bool:
        LosesAnswers.answers += 1
        after = end.before if LosesAnswers.answers % 3 == 0 else end.after
        return super().end_pause(session_id, replace(end, after=after), now_ms)


class HandlesThoseBehind(OneByOne):
    """Has messages behind a paused one pending."""

    def pending(self, session_id: Any, limit: int = 100) -> list[InboxMessage]:
        return list(self.messages(session_id, MessageStatus.PENDING))[:limit]


def found_within(**arguments: Any) -> str:
    """Return how the simulator says that something is broken."""
    for seed in range(ENOUGH):
        try:
            Simulator(seed, **arguments).run()
        except Broken as broken:
            return str(broken)
    pytest.fail(f"{ENOUGH} seeds did not find it")


def test_a_journal_without_an_epoch_check_is_found() -> None:
    said = found_within(store=NoFence)
    assert re.search(r"accepted under epoch \d+, but \d+ was given out", said)
    seed = re.search(r"run it again: python -m podium\.testing\.simulator --seed (\d+)", said)
    assert seed is not None
    with pytest.raises(Broken):
        Simulator(int(seed[1]), store=NoFence).run()


@pytest.mark.parametrize(
    "store",
    [
        NoHeadCheck,
        ConsumesLater,
        Forgets,
        StopsHalfWay,
        RemindsLater,
        FiresTwice,
        LosesDelayed,
    ],
)
def test_a_broken_journal_is_found(store: type[MemoryJournalStore]) -> None:
    found_within(store=store)


@pytest.fixture
def swap() -> Iterator[Callable[[type, str, Any], None]]:
    """Replace a part of Podium with a broken one."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch.setattr


def test_a_ledger_that_takes_a_lost_answer_for_a_failure_is_found(swap: Callable[[type, str, Any], None]) -> None:
    async def append(self: Ledger, commit: Commit) -> Head:
        try:
            self.head = await self._committer.commit(commit)
        except Unavailable:
            pass
        return self.head

    swap(Ledger, "append", append)
    found_within()


def test_a_reminder_that_is_set_before_its_commit_is_found(swap: Callable[[type, str, Any], None]) -> None:
    collect = Reminders.change

    def change_reminder(self: Reminders, change: SetReminder | DropReminder) -> None:
        collect(self, change)
        ledger: Any = getattr(self._turn.stored_reminders, "__self__", None)
        memory = ledger._store._store.store
        memory.change_reminders(ledger.session.session_id, [change])

    swap(Reminders, "change", change_reminder)
    assert "reminder" in found_within(store=OneByOne)


def test_a_journal_that_folds_what_forks_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "_refuse_if_read", lambda *_, **__: None)
    found_within()


def test_an_answer_before_the_commit_is_found(swap: Callable[[type, str, Any], None]) -> None:
    append = Ledger.append

    async def early(self: Ledger, commit: Commit) -> Head:
        last = commit.events[-1]
        for hub in hubs:
            if commit.settled and last.type == "turn.committed":
                frame = {"type": "turn_end", "turn": last.turn, "version": last.seq, "patch": []}
                hub.publish(commit.settled[0].message_id, frame)
        return await append(self, commit)

    hubs: list[StreamHub] = []
    begin = StreamHub.__init__

    def remembered(self: StreamHub) -> None:
        begin(self)
        hubs.append(self)

    swap(StreamHub, "__init__", remembered)
    swap(Ledger, "append", early)
    found_within()


@pytest.mark.parametrize("store", [StepsWithoutFence, LosesSteps])
def test_a_broken_store_of_steps_is_found(store: type[MemoryJournalStore]) -> None:
    found_within(store=store, with_steps=True)


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (AnswersTwice, "was answered"),
        (AnswersLate, "has answered at"),
        (LosesAnswers, "which is not open"),
        (HandlesThoseBehind, "was paused"),
    ],
)
def test_a_broken_store_of_pauses_is_found(store: type[MemoryJournalStore], said: str) -> None:
    assert said in found_within(store=store, with_pauses=True)


def test_a_read_that_sees_the_turn_beside_it_is_found(swap: Callable[[type, str, Any], None]) -> None:
    committed = TurnRunner.committed

    async def live(self: TurnRunner) -> AgentRecord:
        record = await committed(self)
        return replace(record, state=to_json(self.state)) if hasattr(self, "state") else record

    swap(TurnRunner, "committed", live)
    assert "what a read of turn" in found_within(with_pauses=True)


def test_a_tree_of_a_step_that_is_not_restored_is_found(swap: Callable[[type, str, Any], None]) -> None:
    swap(ScratchWorkspace, "move_to", lambda self, ref: None)
    assert "files of turn" in found_within(with_steps=True)


def test_a_question_that_is_sent_again_under_another_key_is_found(swap: Callable[[type, str, Any], None]) -> None:
    admitted = StoreAsker._admitted

    async def anew(self: StoreAsker, session: Session, question: NewMessage) -> InboxMessage:
        return await admitted(self, session, replace(question, idempotency_key=question.message_id))

    swap(StoreAsker, "_admitted", anew)
    assert "was answered twice" in found_within(with_asks=True)


def test_an_answer_to_another_question_is_found(swap: Callable[[type, str, Any], None]) -> None:
    ask = StoreAsker.ask
    firsts: dict[int, Any] = {}

    async def first(self: StoreAsker, *arguments: Any) -> tuple[str, Sequence[Frame]]:
        message_id, frames = await ask(self, *arguments)
        data = firsts.setdefault(id(self._store), frames[-1].get("data"))
        return message_id, [*frames[:-1], {**frames[-1], "data": data}]

    swap(StoreAsker, "ask", first)
    assert "answer of ask" in found_within(with_asks=True)


def test_an_answer_that_is_not_of_its_turns_commit_is_found(swap: Callable[[type, str, Any], None]) -> None:
    reply, replies = Replies.set_result, itertools.count()

    def lost(self: Replies, data: Any) -> None:
        if next(replies) % 10:
            reply(self, data)

    swap(Replies, "set_result", lost)
    assert "number of answers" in found_within(with_asks=True)


def test_an_epoch_check_is_missed_when_a_process_of_several_agents_dies() -> None:
    said = found_within(store=NoFence, with_asks=True)
    assert re.search(r"accepted under epoch \d+, but \d+ was given out", said)


def test_a_state_that_is_not_rolled_back_is_found(swap: Callable[[type, str, Any], None]) -> None:
    load = TurnRunner._load_state

    def once(self: TurnRunner, record: Any) -> None:
        if not hasattr(self, "state"):
            load(self, record)

    swap(TurnRunner, "_load_state", once)
    found_within()
