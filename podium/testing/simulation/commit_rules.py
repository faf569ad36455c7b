"""Invariants of commits that a journal accepts."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.canonical import decode
from chronicle.errors import ChronicleError
from chronicle.journal.records import DropReminder, MessageStatus, Outcome, Reminder, SetReminder
from chronicle.workspace.port import TreeRef
from podium.events import (
    AGENT_CREATED,
    ASSISTANT_MESSAGE,
    MESSAGE_ANSWERED,
    MODEL_CALLED,
    TURN_CANCELLED,
    TURN_COMMITTED,
    TURN_FAILED,
    TURN_PAUSED,
    USER_MESSAGE,
)
from podium.reminders.delayed import DelayedMessage, is_delayed
from podium.reminders.expiries import EXPIRY
from podium.reminders.plans import Plan
from podium.state import follow
from podium.testing.simulation.puppet import Expected, Puppet, expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.ids import MessageId
    from chronicle.journal.records import Commit, Event, Head, Settlement
    from podium.testing.simulation.model import BranchModel, MessageModel, Verdict

__all__ = ["CommitRules"]

_REFUSED_VALUES: Final = ("InvalidInput", "InvalidValue")
"""The errors of puppets' values that JSON cannot represent."""

_STATUS: Final = {
    Outcome.CONSUMED: MessageStatus.CONSUMED,
    Outcome.CANCELLED: MessageStatus.CANCELLED,
    Outcome.FAILED: MessageStatus.PENDING,
    Outcome.PARKED: MessageStatus.PARKED,
    Outcome.PAUSED: MessageStatus.PAUSED,
}


class CommitRules:
    """The invariants of each kind of commit.

    Args:
        verdict: records violations.
        files_of: returns the files of a sealed tree, or raises if there is none.
        sent: messages between agents, address and body; each turn's are added.
    """

    def __init__(
        self,
        verdict: Verdict,
        files_of: Callable[[TreeRef], dict[str, str]],
        sent: dict[MessageId, tuple[str, Any]],
    ) -> None:
        self._verdict = verdict
        self._must, self._same = verdict.must, verdict.same
        self._files_of = files_of
        self._sent = sent
        self._answers: set[int] = set()
        """The numbers of the questions that were answered."""

    def check(self, line: BranchModel, commit: Commit, head: Head) -> None:
        """Check an accepted commit against the model of its branch, and apply it to the model.

        Args:
            line: the model before the commit.
            commit: the accepted commit.
            head: the branch's head after it.

        Raises:
            Broken: an invariant does not hold.
        """
        last = commit.events[-1]
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
        self._must(
            last.type == TURN_COMMITTED or all(change.name == EXPIRY for change in commit.reminders),
            line,
            f"{last.type} changes reminders",
        )
        payload = cast("dict[str, Any]", decode(last.payload or b"null"))
        if line.owes_an_attempt and last.type.startswith("turn."):
            lost = last.type == TURN_FAILED and payload["error"]["type"] == "HostLost"
            self._must(lost, line, f"{last.type} came after a lost host, of which nothing is recorded")
            line.owes_an_attempt = False
        match last.type:
            case "agent.created":
                self._must(not line.created, line, f"{AGENT_CREATED} came twice")
                line.state, line.created = payload["state"], True
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
            case "turn.paused":
                self._pause(line, commit, last, payload)
            case "turn.cancelled":
                self._must(last.turn == line.turn, line, f"{TURN_CANCELLED} counted as a turn")
                cancelled = self._settle(line, commit, (Outcome.CANCELLED,))
                self._kept(line, payload)
                said = [event.type for event in commit.events[:-1] if event.type != MODEL_CALLED]
                wanted = (
                    [USER_MESSAGE, *[ASSISTANT_MESSAGE] * (len(said) - 1)] if payload["policy"] == "interrupt" else []
                )
                self._same(line, f"transcript of a message that was cancelled ({payload['policy']})", said, wanted)
                if payload["by"] is not None:
                    by = line.messages[payload["by"]]
                    self._must(by.position > cancelled.position, line, f"{payload['by']} took the place of a later one")
            case _:
                self._verdict.fail(f"{line.session.name}: a commit ends in {last.type}")
        line.seq = head.seq
        line.ends.append((line.seq, line.turn))

    def _pause(self, line: BranchModel, commit: Commit, last: Event, payload: dict[str, Any]) -> None:
        self._must(last.turn == line.turn, line, f"{TURN_PAUSED} counted as a turn")
        message = self._settle(line, commit, (Outcome.PAUSED,))
        step = message.steps.get(payload["call_id"])
        self._must(step is not None and step.run is None, line, f"it pauses at {payload['call_id']}, which is not open")
        self._must(self._kept(line, payload) is not None, line, "a pause has no tree")
        if payload["kind"] == "program":
            between = any(step.turn != line.turn for step in message.steps.values())
            self._must(between, line, "its steps are said not to fit, and nothing came between")
        expiry = [change.due_ms for change in commit.reminders if isinstance(change, SetReminder)]
        self._same(line, "expiry", expiry, [payload["expires"]] if payload["expires"] is not None else [])

    def _turn(self, line: BranchModel, commit: Commit, payload: dict[str, Any]) -> None:
        last = commit.events[-1]
        sent = {message.message_id: (message.target, decode(message.body)) for message in commit.outbox}
        later = [
            DelayedMessage.from_reminder(Reminder(commit.session_id, change.name, change.due_ms, change.body))
            for change in commit.reminders
            if isinstance(change, SetReminder) and is_delayed(change.name)
        ]
        named = [*sent, *(delayed.message_id for delayed in later)]
        self._must(named == payload["sent"], line, f"turn {last.turn} sends other messages than it names")
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
            self._answered(line, commit, message)
        line.state = follow(line.state, [payload["state"]["patch"]])
        expected = self._expected(line, payload, message, steered)
        self._same(line, f"state of turn {last.turn}", line.state, expected.state)
        replies = _replies(commit, payload["consumed"][0] if by_message else None)
        self._same(line, f"replies of turn {last.turn}", replies, expected.said)
        self._same(line, f"messages sent by turn {last.turn}", list(sent.values()), expected.told)
        delayed = [(each.receiver, each.message) for each in later]
        self._same(line, f"messages that turn {last.turn} sends later", delayed, expected.told_later)
        self._sent.update(sent)
        self._reminders(line, commit, expected)
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

    def _answered(self, line: BranchModel, commit: Commit, message: MessageModel) -> None:
        """Check that a message is answered if it is to be, and is the only one of its number that is."""
        events = [event for event in commit.events if event.type == MESSAGE_ANSWERED]
        wanted = ["answer"] in cast("list[Any]", message.body["do"])
        self._same(line, f"number of answers to {message.body['number']}", len(events), int(wanted))
        if wanted:
            number = cast("int", message.body["number"])
            self._must(number not in self._answers, line, f"question {number} was answered twice")
            self._answers.add(number)
            message.answer = cast("dict[str, Any]", decode(events[0].payload or b"null"))["data"]

    def _expected(
        self, line: BranchModel, payload: dict[str, Any], message: MessageModel | None, steered: list[MessageModel]
    ) -> Expected:
        """Return the expectation after a turn, with what the durable steps of its message returned."""
        steps = message.steps if message is not None else {}
        runs = {key.removesuffix("#1"): step.run for key, step in steps.items() if step.run is not None}
        body = message.body if message is not None else None
        try:
            expected = expect(line.expected, payload["cause"], body, [handed.body for handed in steered], runs)
        except KeyError as error:
            self._verdict.fail(f"{line.session.name}: step {error} of a committed turn is not durable")
        summary = payload.get("steps")
        self._same(line, "number of steps", summary["count"] if summary else 0, len(steps))
        if any(step.turn != line.turn for step in steps.values()):
            # Another turn came between: the patches of the steps apply to what it left, and need not be the same.
            expected.state, line.patched_later = deepcopy(line.state), True
        steps.clear()
        return expected

    def _reminders(self, line: BranchModel, commit: Commit, expected: Expected) -> None:
        """Check the reminders that a turn sets and cancels, and apply them to the model."""
        found: dict[str, Any] = {}
        for change in commit.reminders:
            if is_delayed(change.name):
                assert isinstance(change, SetReminder), "no turn drops one"
                stored = Reminder(commit.session_id, change.name, change.due_ms, change.body)
                delayed = DelayedMessage.from_reminder(stored)
                line.reminders[change.name] = change.due_ms, (delayed.receiver, delayed.message)
            elif isinstance(change, DropReminder):
                found[change.name] = None
                line.reminders.pop(change.name, None)
            else:
                found[change.name] = message = Plan.from_body(change.body).message
                line.reminders[change.name] = change.due_ms, message
        self._same(line, f"reminders of turn {commit.events[-1].turn}", found, expected.reminders)

    def _rewind(self, line: BranchModel, last: Event, payload: dict[str, Any]) -> None:
        self._must(last.turn == line.turn + 1, line, f"going back after turn {line.turn} made turn {last.turn}")
        then, only = line.past[payload["to"]], payload["only"]
        files = line.expected if only == "state" else then
        state = line.expected if only == "files" else then
        expected = Expected(deepcopy(state.state), dict(files.files))
        line.state = follow(line.state, [payload["state"]["patch"]])
        self._same(line, f"state after going back to {payload['to']}", line.state, expected.state)
        line.tree = self._kept(line, payload)
        self._same(line, "files", self._files_of(line.tree) if line.tree is not None else {}, expected.files)
        line.expected = line.past[last.turn] = expected
        line.turn, line.went_back = last.turn, True

    def _failure(self, line: BranchModel, commit: Commit, last: Event, payload: dict[str, Any]) -> None:
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
            == (message.attempts == Puppet.max_attempts or payload["error"]["type"] in _REFUSED_VALUES),
            line,
            f"{payload['message_id']} was {message.status} after attempt {message.attempts}",
        )
        self._must(
            payload["attempt"] == message.attempts, line, f"attempt {message.attempts} is recorded as another one"
        )

    def _settle(self, line: BranchModel, commit: Commit, outcomes: tuple[Outcome, ...]) -> MessageModel:
        """Settle the one message of a commit in the model."""
        self._must(len(commit.settled) == 1, line, f"{commit.events[-1].type} settles {len(commit.settled)} messages")
        return self._settle_one(line, commit, commit.settled[0], outcomes)

    def _settle_one(
        self,
        line: BranchModel,
        commit: Commit,
        settlement: Settlement,
        outcomes: tuple[Outcome, ...],
        *,
        handed: bool = False,
    ) -> MessageModel:
        """Settle a message in the model; one that steered a turn (``handed``) need not be the next."""
        message = line.messages[settlement.message_id]
        dropped = settlement.outcome is Outcome.CANCELLED  # at any position, even if it was parked or paused
        self._must(
            message.status is MessageStatus.PENDING or (dropped and message.status.is_in_inbox),
            line,
            f"{settlement.message_id} was {message.status} and is {settlement.outcome} again",
        )
        self._must(settlement.outcome in outcomes, line, f"{commit.events[-1].type} says {settlement.outcome}")
        if not dropped:
            self._must(line.paused is None, line, f"{settlement.message_id} was handled while {line.paused} was paused")
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
        elif settlement.outcome is Outcome.CANCELLED:
            message.steps.clear()
        return message

    def _kept(self, line: BranchModel, payload: dict[str, Any]) -> TreeRef | None:
        """Return the tree of a commit, after checking that it is durable."""
        if payload["tree_id"] is None:
            return None
        ref = TreeRef(payload["tree_id"], payload["oplog_id"])
        try:
            self._files_of(ref)
        except ChronicleError as error:
            self._verdict.fail(f"{line.session.name}: a tree was committed before it was durable: {error}")
        return ref


def _replies(commit: Commit, message_id: str | None) -> list[str]:
    """Return the texts of a commit's replies to a message."""
    return [
        cast("dict[str, Any]", decode(event.payload or b"null"))["text"]
        for event in commit.events
        if event.type == ASSISTANT_MESSAGE and event.correlation_id == message_id
    ]
