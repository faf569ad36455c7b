"""`Watch`: sees every write that a journal accepts, and knows what it must not accept.

It stands between all hosts and the journal itself, right where a write becomes true, and keeps a model of its own: who
has each lease, what waits in each inbox, where each branch ends, and what state and files each turn must have. What
does not fit raises `Broken`. It trusts nothing it could ask the journal for.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from chronicle.canonical import decode
from chronicle.errors import ChronicleError
from chronicle.journal.records import MessageStatus, Outcome
from chronicle.workspace.port import TreeRef
from podium.events import AGENT_CREATED, ASSISTANT_MESSAGE, TURN_CANCELLED, TURN_COMMITTED, TURN_FAILED, USER_MESSAGE
from podium.state import apply_patch
from podium.testing.puppet import Expected, Puppet, expect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.ids import BranchId, MessageId, SessionId
    from chronicle.journal.records import Branch, Commit, Event, Head, Lease, NewMessage, Receipt, Session, Settlement
    from chronicle.journal.store import JournalStore
    from podium.stream import Frame

__all__ = ["Broken", "Line", "Watch"]

_STATUS: Final = {
    Outcome.CONSUMED: MessageStatus.CONSUMED,
    Outcome.CANCELLED: MessageStatus.CANCELLED,
    Outcome.FAILED: MessageStatus.PENDING,
    Outcome.PARKED: MessageStatus.PARKED,
}


class Broken(AssertionError):
    """Something happened that must never happen."""


@dataclass(slots=True)
class _Message:
    """A message as the model has it."""

    position: int
    body: JsonObject
    status: MessageStatus = MessageStatus.PENDING
    attempts: int = 0
    said: tuple[str, ...] = ()
    """What its turn answered."""
    turn: int = 0
    """The turn that consumed it."""
    steered: bool = False
    """It was handed to the running turn."""
    put_back: bool = False
    """It was parked and came back to its place, which another one behind it may have been handled at meanwhile."""


@dataclass(slots=True)
class Line:
    """An agent's main branch as the model has it."""

    session: Session
    seq: int = 0
    turn: int = 0
    epoch: int = 0
    held: bool = False
    """Whether somebody has the lease under `epoch`."""
    expected: Expected = field(default_factory=Expected)
    state: JsonObject = field(default_factory=dict)
    """The patches' replay, which is compared with `expected` at every turn."""
    owes_a_try: bool = False
    """Whether the lease was taken from somebody who did not give it back: that counts as a try of what waits."""
    created: bool = False
    went_back: bool = False
    folded: bool = False
    tree: TreeRef | None = None
    messages: dict[MessageId, _Message] = field(default_factory=dict)
    past: dict[int, Expected] = field(default_factory=dict)
    """What was expected at each turn."""
    ends: list[tuple[int, int]] = field(default_factory=list)
    """Where a fork can begin: seq and turn after each commit."""

    @property
    def waiting(self) -> list[MessageId]:
        """The pending messages, in order."""
        pending = [
            (message.position, message_id)
            for message_id, message in self.messages.items()
            if message.status is MessageStatus.PENDING
        ]
        return [message_id for _, message_id in sorted(pending)]


class Watch:
    """A view of a journal through which all of a simulation's writes go.

    Args:
        store: the journal.
        files_of: returns the files of a sealed tree, or raises when there is no such tree.
        note: takes a line of the protocol.
    """

    def __init__(
        self, store: JournalStore, files_of: Callable[[TreeRef], dict[str, str]], note: Callable[..., None]
    ) -> None:
        self.store = store
        self.lines: dict[SessionId, Line] = {}
        self.commits = 0
        self.sent: dict[MessageId, tuple[str, Any]] = {}
        """What was sent from agent to agent: address and message."""
        self.broken: Broken | None = None
        """The first thing that was wrong, wherever it was raised."""
        self._files_of = files_of
        self._note = note

    def __getattr__(self, name: str) -> Any:
        """Pass on what only reads."""
        return getattr(self.store, name)

    def line(self, session_id: SessionId) -> Line:
        """Return the model of a session."""
        return self.lines[session_id]

    # -- writes ---------------------------------------------------------------------------------------------------

    def ensure_session(self, name: str, session_id: SessionId, branch_id: BranchId, now_ms: int) -> Session:
        """Make a session."""
        session = self.store.ensure_session(name, session_id, branch_id, now_ms)
        self.lines.setdefault(session.session_id, Line(session))
        return session

    def fork_session(
        self, parent: BranchId, seq: int, name: str, session_id: SessionId, branch_id: BranchId, now_ms: int
    ) -> Session:
        """Fork a session's main branch, at the end of a commit."""
        session = self.store.fork_session(parent, seq, name, session_id, branch_id, now_ms)
        origin = next(line for line in self.lines.values() if line.session.main_branch_id == parent)
        turn = dict(origin.ends)[seq]
        past = {number: expected for number, expected in origin.past.items() if number <= turn}
        line = Line(session, seq, turn, expected=past[turn], state=deepcopy(past[turn].state), created=True, past=past)
        line.ends = [(end, number) for end, number in origin.ends if end <= seq]
        self.lines[session.session_id] = line
        return session

    def acquire_lease(
        self, session_id: SessionId, holder: str, now_ms: int, ttl_ms: int, *, takeover: bool = False
    ) -> Lease:
        """Take a lease."""
        lease = self.store.acquire_lease(session_id, holder, now_ms, ttl_ms, takeover=takeover)
        line = self.lines[session_id]
        self._must(lease.epoch == line.epoch + 1, line, f"epoch {lease.epoch} came after {line.epoch}")
        line.epoch, line.held, line.owes_a_try = lease.epoch, True, line.held
        self._note("lease", line.session.name, lease.epoch, holder)
        return lease

    def release_lease(self, session_id: SessionId, epoch: int) -> None:
        """Give a lease back."""
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
        if message.sender is not None:
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
            line.messages[receipt.message_id] = _Message(receipt.position, body)
        self._note("admit", line.session.name, receipt.message_id[-6:], receipt.position)
        return receipt

    def retry_message(self, session_id: SessionId, message_id: MessageId) -> Any:
        """Put a parked message back."""
        message = self.store.retry_message(session_id, message_id)
        model = self.lines[session_id].messages[message_id]
        model.status, model.attempts, model.put_back = MessageStatus.PENDING, 0, True
        self._note("again", self.lines[session_id].session.name, message_id[-6:])
        return message

    def fold(self, branch_id: BranchId, before_seq: int, now_ms: int) -> Branch:
        """Drop what came before a mark."""
        branch = self.store.fold(branch_id, before_seq, now_ms)
        line = next(line for line in self.lines.values() if line.session.main_branch_id == branch_id)
        line.ends = [(seq, turn) for seq, turn in line.ends if seq >= before_seq]
        self._must(line.ends[0][0] == before_seq, line, f"{before_seq} is not a mark, and it was folded up to there")
        first = line.ends[0][1]
        line.past = {turn: expected for turn, expected in line.past.items() if turn >= first}
        line.folded = True
        self._note("fold", line.session.name, "before", before_seq)
        return branch

    def commit(self, commit: Commit) -> Head:
        """Commit, and compare what was accepted with the model."""
        head = self.store.commit(commit)
        self._accepted(commit, head)
        return head

    def commit_many(self, commits: Sequence[Commit]) -> list[Head | Exception]:
        """Commit several, and compare."""
        outcomes = self.store.commit_many(commits)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                self._accepted(commit, outcome)
        return outcomes

    # -- what must hold -------------------------------------------------------------------------------------------

    def _accepted(self, commit: Commit, head: Head) -> None:
        line = self.lines[commit.session_id]
        last = commit.events[-1]
        self._note("commit", line.session.name, last.type, f"turn {last.turn}", f"seq {head.seq}", commit.epoch)
        self.commits += 1
        self._must(
            (line.held and commit.epoch == line.epoch) or (commit.epoch is None and line.epoch == 0),
            line,
            f"{last.type} was accepted under epoch {commit.epoch}, but {line.epoch} was given out",
        )
        self._must(
            commit.expected.seq == line.seq and head.seq == line.seq + len(commit.events),
            line,
            f"{last.type} was put on {commit.expected.seq}, but the branch ends at {line.seq}",
        )
        payload = cast("dict[str, Any]", decode(last.payload or b"null"))
        if line.owes_a_try and last.type.startswith("turn."):
            lost = last.type == TURN_FAILED and payload["error"]["type"] == "HostLost"
            self._must(lost, line, f"{last.type} came after a lost host, of which nothing is recorded")
            line.owes_a_try = False
        match last.type:
            case "agent.created":
                line.state, line.created = payload["state"], True
                self._must(line.seq == 0, line, f"{AGENT_CREATED} is not its first event")
                self._same(line, "state", line.state, line.expected.state)
                line.past[0] = line.expected
            case "turn.committed":
                self._turn(line, commit, payload)
            case "agent.forked":
                self._must(last.turn == line.turn and not commit.settled, line, "a fork's first event is a turn")
            case "agent.rewound":
                self._rewind(line, last, payload)
            case "agent.snapshot":
                self._must(last.turn == line.turn and not commit.settled, line, "a mark counted as a turn")
                self._same(line, "state of a mark", payload["state"], line.expected.state)
                tree = self._kept(line, payload)
                self._same(line, "files of a mark", self._files_of(tree) if tree else {}, line.expected.files)
            case "turn.failed":
                self._failure(line, commit, last, payload)
            case "turn.cancelled":
                self._must(last.turn == line.turn, line, f"{TURN_CANCELLED} counted as a turn")
                cancelled = self._settle(line, commit, (Outcome.CANCELLED,))
                self._kept(line, payload)
                said = [event.type for event in commit.events[:-1]]
                wanted = (
                    [USER_MESSAGE, *[ASSISTANT_MESSAGE] * (len(said) - 1)] if payload["policy"] == "interrupt" else []
                )
                self._same(line, f"transcript of a message that was cancelled ({payload['policy']})", said, wanted)
                if payload["by"] is not None:
                    by = line.messages[payload["by"]]
                    self._must(by.position > cancelled.position, line, f"{payload['by']} took the place of a later one")
            case _:
                self.fail(f"{line.session.name}: a commit ends in {last.type}")
        line.seq = head.seq
        line.ends.append((line.seq, line.turn))

    def _turn(self, line: Line, commit: Commit, payload: dict[str, Any]) -> None:
        last = commit.events[-1]
        sent = {message.message_id: (message.target, decode(message.body)) for message in commit.outbox}
        self._must(list(sent) == payload["sent"], line, f"turn {last.turn} sends other messages than it names")
        self._must(last.turn == line.turn + 1, line, f"turn {last.turn} was committed after turn {line.turn}")
        self._must(payload["epoch"] == commit.epoch, line, f"{TURN_COMMITTED} names epoch {payload['epoch']}")
        by_message = payload["cause"] == "message"
        self._must(bool(payload["consumed"]) == by_message, line, f"{payload['cause']} consumed {payload['consumed']}")
        self._must(
            [settlement.message_id for settlement in commit.settled] == payload["consumed"],
            line,
            f"turn {last.turn} settles other messages than it names",
        )
        message, steered = None, []
        if by_message:
            first_one, *others = commit.settled
            message = self._settle_one(line, commit, first_one, (Outcome.CONSUMED,))
            steered = [self._settle_one(line, commit, other, (Outcome.CONSUMED,), handed=True) for other in others]
            first = commit.events[0]
            said = cast("dict[str, Any]", decode(first.payload or b"null"))
            self._must(first.type == USER_MESSAGE, line, f"turn {last.turn} begins with {first.type}")
            self._same(line, "message", said["message"], message.body)
        expected = expect(
            line.expected, payload["cause"], message.body if message else None, [handed.body for handed in steered]
        )
        line.state = cast("JsonObject", apply_patch(line.state, payload["state"]["patch"]))
        self._same(line, f"state of turn {last.turn}", line.state, expected.state)
        replies = _replies(commit, payload["consumed"][0] if by_message else None)
        self._same(line, f"replies of turn {last.turn}", replies, expected.said)
        self._same(line, f"messages sent by turn {last.turn}", list(sent.values()), expected.told)
        self.sent.update(sent)
        line.tree = self._kept(line, payload)
        files = self._files_of(line.tree) if line.tree is not None else {}
        self._same(line, f"files of turn {last.turn}", files, expected.files)
        line.expected = line.past[last.turn] = expected
        line.turn = last.turn
        if message is not None:
            message.said, message.turn = tuple(replies), last.turn
        for handed, message_id in zip(steered, payload["consumed"][1:], strict=True):
            handed.said, handed.turn, handed.steered = tuple(_replies(commit, message_id)), last.turn, True
            wanted = (f"steered by {handed.body['number']}",)
            self._same(line, f"replies to {message_id}, which steered turn {last.turn}", handed.said, wanted)

    def _rewind(self, line: Line, last: Event, payload: dict[str, Any]) -> None:
        self._must(last.turn == line.turn + 1, line, f"going back after turn {line.turn} made turn {last.turn}")
        then, only = line.past[payload["to"]], payload["only"]
        files = line.expected if only == "state" else then
        state = line.expected if only == "files" else then
        expected = Expected(deepcopy(state.state), dict(files.files))
        line.state = cast("JsonObject", apply_patch(line.state, payload["state"]["patch"]))
        self._same(line, f"state after going back to {payload['to']}", line.state, expected.state)
        line.tree = self._kept(line, payload)
        self._same(line, "files", self._files_of(line.tree) if line.tree is not None else {}, expected.files)
        line.expected = line.past[last.turn] = expected
        line.turn, line.went_back = last.turn, True

    def _failure(self, line: Line, commit: Commit, last: Event, payload: dict[str, Any]) -> None:
        self._must(last.turn == line.turn, line, f"{TURN_FAILED} counted as a turn")
        self._kept(line, payload)
        if payload["message_id"] is None:
            self._must(not commit.settled, line, "a failed hook settles a message")
            return
        message = self._settle(line, commit, (Outcome.FAILED, Outcome.PARKED))
        self._must(
            message.attempts <= Puppet.max_attempts
            and (message.status is MessageStatus.PARKED)
            == payload["parked"]
            == (message.attempts == Puppet.max_attempts),
            line,
            f"{payload['message_id']} was {message.status} after try {message.attempts}",
        )
        self._must(payload["attempt"] == message.attempts, line, f"try {message.attempts} is recorded as another one")

    def _settle(self, line: Line, commit: Commit, outcomes: tuple[Outcome, ...]) -> _Message:
        """Settle the one message of a commit in the model."""
        self._must(len(commit.settled) == 1, line, f"{commit.events[-1].type} settles {len(commit.settled)} messages")
        return self._settle_one(line, commit, commit.settled[0], outcomes)

    def _settle_one(
        self, line: Line, commit: Commit, settlement: Settlement, outcomes: tuple[Outcome, ...], *, handed: bool = False
    ) -> _Message:
        """Settle a message in the model; one that was ``handed`` to a running turn need not be the next."""
        message = line.messages[settlement.message_id]
        dropped = settlement.outcome is Outcome.CANCELLED  # wherever it waits, and even if it was set aside
        self._must(
            message.status is MessageStatus.PENDING or (dropped and message.status is MessageStatus.PARKED),
            line,
            f"{settlement.message_id} was {message.status} and is {settlement.outcome} again",
        )
        self._must(settlement.outcome in outcomes, line, f"{commit.events[-1].type} says {settlement.outcome}")
        if not dropped and not handed:
            first = next(one for one in line.waiting if one == settlement.message_id or not line.messages[one].put_back)
            self._must(
                first == settlement.message_id,
                line,
                f"{settlement.message_id} was {settlement.outcome} while {first} waits before it",
            )
        message.status = _STATUS[settlement.outcome]
        if settlement.outcome in (Outcome.FAILED, Outcome.PARKED):
            message.attempts += 1
        return message

    def _kept(self, line: Line, payload: dict[str, Any]) -> TreeRef | None:
        """Return the tree of a commit, which must be durable by now."""
        if payload["tree_id"] is None:
            return None
        ref = TreeRef(payload["tree_id"], payload["oplog_id"])
        try:
            self._files_of(ref)
        except ChronicleError as error:
            self.fail(f"{line.session.name}: a tree was committed before it was durable: {error}")
        return ref

    # -- what clients see -----------------------------------------------------------------------------------------

    def shown(self, session_id: SessionId, message_id: MessageId, frames: Sequence[Frame]) -> None:
        """Check the frames that a client got of a message, from wherever it began to listen up to the last one."""
        line = self.lines[session_id]
        message = line.messages[message_id]
        terminal = [frame for frame in frames if frame["type"] in {"turn_end", "error"}]
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
        """Compare every message's status with what the commits said of it."""
        for message_id, (target, _) in self.sent.items():
            receivers = [line.session.name for line in self.lines.values() if message_id in line.messages]
            if receivers != [target] or self.store.outbox():
                self.fail(f"{message_id} was sent to {target} and got to {receivers}")
        for line in self.lines.values():
            for message_id, message in line.messages.items():
                stored = self.store.message(message_id)
                self._same(line, f"status of {message_id}", stored.status, message.status)
                self._same(line, f"attempts of {message_id}", stored.attempts, message.attempts)
            log = [
                message.body["number"]
                for message in sorted(line.messages.values(), key=lambda message: message.turn)
                if message.status is MessageStatus.CONSUMED and not message.steered
            ]
            if line.went_back:
                continue
            found = cast("list[int]", line.state.get("log", []))
            self._same(line, "messages in its state", found[len(found) - len(log) :], log)

    def fail(self, what: str) -> NoReturn:
        """Remember what is wrong, and raise it."""
        broken = Broken(what)
        self.broken = self.broken or broken
        raise broken

    def _must(self, holds: bool, line: Line, otherwise: str) -> None:
        if not holds:
            self.fail(f"{line.session.name}: {otherwise}")

    def _same(self, line: Line, what: str, found: Any, wanted: Any) -> None:
        if found != wanted:
            self.fail(f"{line.session.name}: {what} is {found!r}, but must be {wanted!r}")


def _replies(commit: Commit, message_id: str | None) -> list[str]:
    """Return the texts of a commit's replies to a message."""
    return [
        cast("dict[str, Any]", decode(event.payload or b"null"))["text"]
        for event in commit.events
        if event.type == ASSISTANT_MESSAGE and event.correlation_id == message_id
    ]
