"""The model of a journal's content that the oracle keeps, and the verdict of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from chronicle.journal.records import MessageStatus
from podium.testing.simulation.puppet import Expected

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.canonical import JsonObject
    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import Session
    from chronicle.workspace.port import TreeRef

__all__ = ["BranchModel", "Broken", "MessageModel", "StepModel", "Verdict"]


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True)
class StepModel:
    """The model of a step that ended."""

    run: int | None
    """Its result; ``None`` while it is that of a pause which has not ended."""
    turn: int
    """The last turn of the agent at that time."""


@dataclass(slots=True)
class MessageModel:
    """The model of a message."""

    position: int
    body: JsonObject
    status: MessageStatus = MessageStatus.PENDING
    attempts: int = 0
    said: tuple[str, ...] = ()
    """The replies of its turn."""
    turn: int = 0
    """The turn that consumed it."""
    steered: bool = False
    """Whether it steered a turn."""
    steps: dict[str, StepModel] = field(default_factory=dict)
    """By key, the steps that ended; those that were dropped by numbers instead."""
    answer: Any = None
    """Answer of its turn; ``None`` for nothing."""
    put_back: bool = False
    """Whether it was parked and retried: later messages may have been handled before it."""

    def drop_steps(self, kept: int) -> None:
        """Note that a person has dropped its steps but the first ones: they may be run again.

        A pause that was stored, and whose commit was lost, goes in any case: only the last record may be open.
        """
        steps: dict[str, StepModel] = {}
        for number, (key, step) in enumerate(self.steps.items()):
            holds = "#" in key
            is_kept = not holds or (kept > 0 and step.run is not None)
            steps[key if is_kept else f"dropped {number}"] = step
            kept -= holds
        self.steps = steps


@dataclass(slots=True)
class BranchModel:
    """The model of an agent's main branch."""

    session: Session
    seq: int = 0
    turn: int = 0
    epoch: int = 0
    held: bool = False
    """Whether the lease of `epoch` is held."""
    expected: Expected = field(default_factory=Expected)
    state: JsonObject = field(default_factory=dict)
    """The replay of the patches, compared with `expected` at each turn."""
    owes_an_attempt: bool = False
    """Whether the lease was taken over unreleased: that counts as an attempt of the oldest message."""
    created: bool = False
    origin: SessionId | None = None
    """Of a fork: the session whose events it reads before its own; ``None`` once it is folded."""
    went_back: bool = False
    patched_later: bool = False
    """Whether steps were applied to the state of a turn that came after them: list items may be in another order."""
    folded: bool = False
    tree: TreeRef | None = None
    messages: dict[MessageId, MessageModel] = field(default_factory=dict)
    reminders: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """The reminders that are set, by name: when each is due, and its message."""
    past: dict[int, Expected] = field(default_factory=dict)
    """The expectation at each turn."""
    ends: list[tuple[int, int]] = field(default_factory=list)
    """Possible fork points: seq and turn after each commit."""

    @property
    def waiting(self) -> list[MessageId]:
        """The pending messages, in order."""
        pending = [
            (message.position, message_id)
            for message_id, message in self.messages.items()
            if message.status is MessageStatus.PENDING
        ]
        return [message_id for _, message_id in sorted(pending)]

    @property
    def paused(self) -> MessageId | None:
        """The paused message; ``None`` without one."""
        return next(
            (message_id for message_id, message in self.messages.items() if message.status is MessageStatus.PAUSED),
            None,
        )


class Verdict:
    """The verdict of a run so far."""

    def __init__(self) -> None:
        self.broken: Broken | None = None
        """The first violation, wherever it was raised."""
        self.stop: Callable[[], object] = bool
        """Ends the run: tasks that wait for broken parts may wait for ever."""

    def fail(self, what: str) -> NoReturn:
        """Record a violation, end the run, and raise it."""
        broken = Broken(what)
        self.broken = self.broken or broken
        self.stop()
        raise broken

    def must(self, holds: bool, line: BranchModel, otherwise: str) -> None:
        """Fail unless a condition of a branch holds."""
        if not holds:
            self.fail(f"{line.session.name}: {otherwise}")

    def same(self, line: BranchModel, what: str, found: Any, wanted: Any) -> None:
        """Fail unless a value of a branch equals the expected one."""
        if found != wanted:
            self.fail(f"{line.session.name}: {what} is {found!r}, but must be {wanted!r}")
