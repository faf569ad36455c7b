"""`JournalOracle`: the test oracle of the simulator; checks every write that the journal accepts.

All hosts write through it. It keeps a model of its own: the holder of each lease, the pending messages of each inbox,
the head of each branch, and the expected state and files of each turn. A violation raises `Broken`. It never trusts the
journal's own answers.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.canonical import decode
from chronicle.journal.records import DEFAULT_NAMESPACE, Commit, Head, MessageStatus, StepWrite
from podium.history.step_record import BEGIN_ANEW, GO_ON, read_record
from podium.messages.headers import ask_in
from podium.testing.simulation.commit_rules import CommitRules
from podium.testing.simulation.model import BranchModel, MessageModel, StepModel, Verdict
from podium.testing.simulation.puppet import NOBODY
from podium.turn.stream import TERMINAL_FRAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.ids import BranchId, MessageId, SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import (
        Branch,
        Lease,
        NewMessage,
        OutboxMessage,
        PauseEnd,
        Receipt,
        Session,
        StoredStep,
    )
    from chronicle.workspace.port import TreeRef
    from podium.turn.stream import Frame

__all__ = ["JournalOracle"]

NO_BLOBS: Final = MemoryBlobStore()
"""The results of puppets' steps are small."""


class JournalOracle:
    """A proxy of a journal that checks all writes of a simulation.

    Args:
        store: the journal.
        files_of: returns the files of a sealed tree, or raises if there is none.
        note: adds a line to the protocol.
    """

    def __init__(
        self, store: JournalStore, files_of: Callable[[TreeRef], dict[str, str]], note: Callable[..., None]
    ) -> None:
        self.store = store
        self.lines: dict[SessionId, BranchModel] = {}
        self.commits = 0
        self.batches = 0
        """Batches of more than one commit or step."""
        self.sent: dict[MessageId, tuple[str, Any]] = {}
        """Messages between agents: address and body."""
        self.verdict = Verdict()
        self._must, self._same = self.verdict.must, self.verdict.same
        self._rules = CommitRules(self.verdict, files_of, self.sent)
        self._files_of = files_of
        self._note = note

    def __getattr__(self, name: str) -> Any:
        """Forward reads."""
        return getattr(self.store, name)

    def line(self, session_id: SessionId) -> BranchModel:
        """Return the model of a session."""
        return self.lines[session_id]

    # -- writes ---------------------------------------------------------------------------------------------------

    def ensure_session(
        self,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        now_ms: int,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Session:
        """Create a session."""
        session = self.store.ensure_session(name, session_id, branch_id, now_ms, namespace)
        self.lines.setdefault(session.session_id, BranchModel(session))
        return session

    def fork_session(
        self, parent: BranchId, seq: int, name: str, session_id: SessionId, branch_id: BranchId, now_ms: int
    ) -> Session:
        """Fork a session's main branch, at the end of a commit."""
        session = self.store.fork_session(parent, seq, name, session_id, branch_id, now_ms)
        origin = next(line for line in self.lines.values() if line.session.main_branch_id == parent)
        turn = dict(origin.ends)[seq]
        past = {number: expected for number, expected in origin.past.items() if number <= turn}
        line = BranchModel(
            session, seq, turn, expected=past[turn], state=deepcopy(past[turn].state), created=True, past=past
        )
        line.origin = origin.session.session_id
        line.ends = [(end, number) for end, number in origin.ends if end <= seq]
        self.lines[session.session_id] = line
        return session

    def acquire_lease(
        self,
        session_id: SessionId,
        holder: str,
        now_ms: int,
        ttl_ms: int,
        *,
        takeover: bool = False,
        least_epoch: int = 0,
    ) -> Lease:
        """Acquire a lease."""
        lease = self.store.acquire_lease(session_id, holder, now_ms, ttl_ms, takeover=takeover, least_epoch=least_epoch)
        line = self.lines[session_id]
        wanted = max(line.epoch + 1, least_epoch)
        self._must(lease.epoch == wanted, line, f"epoch {lease.epoch} came after {line.epoch}, and not {wanted}")
        line.epoch, line.held, line.owes_an_attempt = lease.epoch, True, line.held
        self._note("lease", line.session.name, lease.epoch, holder)
        return lease

    def release_lease(self, session_id: SessionId, epoch: int) -> None:
        """Release a lease."""
        self.store.release_lease(session_id, epoch)
        line = self.lines[session_id]
        if line.epoch == epoch:
            line.held = False
        self._note("release", line.session.name, epoch)

    def admit(self, session_id: SessionId, message: NewMessage, limit: int = 1000) -> Receipt:
        """Admit a message."""
        receipt = self.store.admit(session_id, message, limit)
        line = self.lines[session_id]
        known = line.messages.get(receipt.message_id)
        if message.sender is not None and ask_in(message.headers) is None:
            wanted = (line.session.name, decode(message.body))
            self._same(line, "a message from another agent", self.sent.get(message.message_id), wanted)
            self._must(receipt.message_id == message.message_id, line, "a delivery was taken for another message")
        if receipt.repeated:
            self._must(known is not None, line, f"{receipt.message_id} is a repeat of nothing")
        else:
            last = max((other.position for other in line.messages.values()), default=0)
            self._must(
                known is None and receipt.position == last + 1, line, f"position {receipt.position} after {last}"
            )
            body = cast("JsonObject", decode(message.body))
            line.messages[receipt.message_id] = MessageModel(receipt.position, body)
        self._note("admit", line.session.name, receipt.message_id[-6:], receipt.position)
        return receipt

    def fire_reminder(
        self,
        session_id: SessionId,
        name: str,
        due_ms: int,
        message: NewMessage,
        next_due_ms: int | None,
        next_body: bytes | None = None,
    ) -> Receipt | None:
        """Fire a reminder, and check that a commit has set it for a time that has come."""
        receipt = self.store.fire_reminder(session_id, name, due_ms, message, next_due_ms, next_body)
        if receipt is None:
            return None
        line = self.lines[session_id]
        reminder = line.reminders.pop(name, None)
        self._same(line, f"reminder {name} that fired", (due_ms, decode(message.body)), reminder)
        self._must(due_ms <= message.admitted_ms, line, f"{name} fired before it was due")
        self._must(next_due_ms is None, line, f"{name} is due again")
        body = cast("JsonObject", decode(message.body))
        line.messages[receipt.message_id] = MessageModel(receipt.position, body)
        self._note("fire", line.session.name, name, receipt.message_id[-6:], receipt.position)
        return receipt

    def send_reminder(self, session_id: SessionId, name: str, due_ms: int, message: OutboxMessage) -> bool:
        """Send a delayed message, and check that a commit has set it for a time that has come."""
        if not self.store.send_reminder(session_id, name, due_ms, message):
            return False
        line, told = self.lines[session_id], (message.target, decode(message.body))
        self._same(line, f"{name} that was sent", (due_ms, told), line.reminders.pop(name, None))
        self._must(due_ms <= message.created_ms, line, f"{name} was sent before its time")
        self._must(message.sender == line.session.name, line, f"{name} was sent as {message.sender}")
        self.sent[message.message_id] = told
        self._note("send", line.session.name, name, message.message_id[-6:])
        return True

    def retry_message(self, session_id: SessionId, message_id: MessageId) -> Any:
        """Put a parked message back."""
        message = self.store.retry_message(session_id, message_id)
        model = self.lines[session_id].messages[message_id]
        model.status, model.attempts, model.put_back = MessageStatus.PENDING, 0, True
        self._note("again", self.lines[session_id].session.name, message_id[-6:])
        return message

    def fold(self, branch_id: BranchId, before_seq: int, now_ms: int) -> Branch:
        """Drop the events before a mark."""
        branch = self.store.fold(branch_id, before_seq, now_ms)
        line = next(line for line in self.lines.values() if line.session.main_branch_id == branch_id)
        readers = [str(fork.session.name) for fork in self.lines.values() if fork.origin == line.session.session_id]
        self._must(not readers, line, f"it was folded, and {', '.join(readers)} read from it")
        line.origin = None
        line.ends = [(seq, turn) for seq, turn in line.ends if seq >= before_seq]
        self._must(line.ends[0][0] == before_seq, line, f"{before_seq} is not a mark, and it was folded up to there")
        first = line.ends[0][1]
        line.past = {turn: expected for turn, expected in line.past.items() if turn >= first}
        line.folded = True
        self._note("fold", line.session.name, "before", before_seq)
        return branch

    def commit(self, commit: Commit) -> Head:
        """Commit, and check the accepted commit against the model."""
        head = self.store.commit(commit)
        self._accepted(commit, head)
        return head

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store a step, and check the accepted one against the model."""
        self.store.put_step(session_id, step, epoch)
        self._ended(session_id, step, epoch)

    def end_pause(self, session_id: SessionId, end: PauseEnd, now_ms: int) -> bool:
        """End a pause, and check that it was open, and that the time was right."""
        taken = self.store.end_pause(session_id, end, now_ms)
        line = self.lines[session_id]
        if not taken:
            return False
        message, after = line.messages[end.message_id], read_record(end.after, NO_BLOBS)
        open_step, pause = message.steps[after.key], after.pause
        self._note("answer", line.session.name, after.key, f"of {end.message_id[-6:]}", pause and pause.get("outcome"))
        assert pause is not None
        self._must(message.status is MessageStatus.PAUSED, line, f"{after.key} was answered, and is {message.status}")
        self._must(open_step.run is None, line, f"{after.key} was answered twice")
        is_late = pause["expires"] is not None and now_ms >= pause["expires"]
        self._must((pause["outcome"] == "expired") == is_late, line, f"{after.key} has {pause['outcome']} at {now_ms}")
        message.status = MessageStatus.PENDING
        if pause["kind"] == "program":
            message.steps[after.key] = StepModel(0, open_step.turn)
            kept = {GO_ON: pause["fits"], BEGIN_ANEW: 0}.get(cast("str", after.result), len(message.steps))
            message.drop_steps(kept)
            return True
        run = NOBODY if is_late else cast("int", after.result)
        message.steps[after.key] = StepModel(0 if pause["kind"] == "sleep" else run, open_step.turn)
        return True

    def drop_steps(self, message_id: MessageId) -> None:
        """Drop the steps of a message."""
        self.store.drop_steps(message_id)
        for line in self.lines.values():
            if message_id in line.messages:
                line.messages[message_id].steps.clear()

    def check_run(self, session_id: SessionId, epoch: int, number: int, name: str) -> None:
        """Check that a step whose function is called has not ended before."""
        line = self.lines[session_id]
        if not line.held or line.epoch != epoch:
            return  # a host that has lost the agent, and does not know it yet
        ended = [
            message_id
            for message_id, message in line.messages.items()
            if message.body.get("number") == number and f"{name}#1" in message.steps
        ]
        self._must(not ended, line, f"step {name} of message {ended} is run again, and has ended")

    def _ended(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        line = self.lines[session_id]
        self._note("step", line.session.name, step.key, f"of {step.message_id[-6:]}", epoch)
        self._must(
            line.held and epoch == line.epoch,
            line,
            f"step {step.key} was accepted under epoch {epoch}, but {line.epoch} was given out",
        )
        message = line.messages[step.message_id]
        self._must(message.status is MessageStatus.PENDING, line, f"step {step.key} is of a message {message.status}")
        record = read_record(step.body, NO_BLOBS)
        self._files_of(record.tree)
        found = StepModel(None if record.is_open else self._run_of(line, step.key, record.result), line.turn)
        known = message.steps.setdefault(step.key, found)
        self._must(known.run == found.run, line, f"step {step.key} ended twice")
        self._must(step.number <= len(message.steps), line, f"step {step.key} is number {step.number}")

    def _run_of(self, line: BranchModel, key: str, result: Any) -> int:
        """Return the number of the run whose result a step has; that of a question is in its committed answer."""
        if not key.startswith("ask "):
            return cast("int", result)
        asked = next(
            other.messages.get(result["message_id"])
            for other in self.lines.values()
            if result["message_id"] in other.messages
        )
        assert asked is not None
        self._must(asked.status is MessageStatus.CONSUMED, line, f"{key} has an answer of a message {asked.status}")
        self._same(line, f"answer of {key}", result["data"], asked.answer)
        return cast("int", result["data"]["run"])

    def commit_many(self, writes: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        """Commit several, and check the accepted ones."""
        outcomes = self.store.commit_many(writes)
        self.batches += len(writes) > 1
        for write, outcome in zip(writes, outcomes, strict=True):
            if isinstance(write, Commit) and isinstance(outcome, Head):
                self._accepted(write, outcome)
            elif isinstance(write, StepWrite) and outcome is None:
                self._ended(write.session_id, write.step, write.epoch)
        return outcomes

    def _accepted(self, commit: Commit, head: Head) -> None:
        line, last = self.lines[commit.session_id], commit.events[-1]
        self._note("commit", line.session.name, last.type, f"turn {last.turn}", f"seq {head.seq}", commit.epoch)
        self.commits += 1
        self._rules.check(line, commit, head)

    # -- what clients see -----------------------------------------------------------------------------------------

    def shown(self, session_id: SessionId, message_id: MessageId, frames: Sequence[Frame]) -> None:
        """Check the frames that a client got of a message, from its subscription to the last one."""
        line = self.lines[session_id]
        message = line.messages[message_id]
        terminal = [frame for frame in frames if frame["type"] in TERMINAL_FRAMES]
        self._must(len(terminal) == 1 and terminal[0] is frames[-1], line, f"{message_id} ended {len(terminal)} times")
        (end,) = terminal
        if end["type"] == "turn_end":
            self._must(
                message.status is MessageStatus.CONSUMED and message.turn == end["turn"] <= line.turn,
                line,
                f"turn_end {end['turn']} of {message_id} was shown, but it is {message.status} in turn {message.turn}",
            )
            starts = [number for number, frame in enumerate(frames) if frame["type"] == "turn_start"]
            texts = [frame["text"] for frame in frames[starts[-1] if starts else 0 :] if frame["type"] == "message_end"]
            self._same(line, f"replies shown for {message_id}", tuple(texts), message.said)
            return
        if end["type"] == "turn_paused":  # it may have gone on since
            return
        if end["error"]["type"] == "HistoryDropped":
            self._must(
                line.folded and message.status is not MessageStatus.PENDING,
                line,
                f"{message_id} was shown as of long ago, but nothing was dropped since",
            )
            return
        wanted = MessageStatus.PARKED if end["parked"] else MessageStatus.CANCELLED
        if message.status is not wanted and message.status is not MessageStatus.PENDING:
            # A parked message may have been put back, and even handled, since.
            self._must(wanted is MessageStatus.PARKED, line, f"{message_id} was shown as {wanted}: {message.status}")
        if wanted is MessageStatus.PARKED:
            self._must(end["error"]["type"] != "Cancelled", line, f"{message_id} was parked and shown as cancelled")

    def shown_live(self, session_id: SessionId, seq: int, state: JsonObject, files: dict[str, str] | None) -> None:
        """Check an activation's own memory, right after a commit of its own at that seq."""
        line = self.lines[session_id]
        if seq != line.seq:
            return
        self._same(line, "live state", state, line.state)
        if files is not None:
            self._same(line, "live files", files, line.expected.files)

    # -- at the end -----------------------------------------------------------------------------------------------

    def check_inboxes(self) -> None:
        """Compare every message's status with the commits."""
        for message_id, (target, _) in self.sent.items():
            receivers = [line.session.name for line in self.lines.values() if message_id in line.messages]
            if receivers != [target] or self.store.outbox():
                self.verdict.fail(f"{message_id} was sent to {target} and got to {receivers}")
        for line in self.lines.values():
            self._must(not line.reminders, line, f"reminders were set and did not fire: {line.reminders}")
            self._must(not self.store.reminders(line.session.session_id), line, "there are reminders that nothing set")
            for message_id, message in line.messages.items():
                stored = self.store.message(message_id)
                self._same(line, f"status of {message_id}", stored.status, message.status)
                self._same(line, f"attempts of {message_id}", stored.attempts, message.attempts)
            log = [
                message.body["number"]
                for message in sorted(line.messages.values(), key=lambda message: message.turn)
                if message.status is MessageStatus.CONSUMED and not message.steered
            ]
            if line.went_back or line.patched_later:
                continue
            found = cast("list[int]", line.state.get("log", []))
            self._same(line, "messages in its state", found[len(found) - len(log) :], log)
