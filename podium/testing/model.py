"""What a journal must hold, as a model that is kept beside it, and the verdict on what it does hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from chronicle.journal.records import MessageStatus
from podium.testing.puppet import Expected

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.canonical import JsonObject
    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import Session
    from chronicle.workspace.port import TreeRef

__all__ = ["BranchModel", "Broken", "MessageModel", "Verdict"]


class Broken(AssertionError):
    """Something happened that must never happen."""


@dataclass(slots=True)
class MessageModel:
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
class BranchModel:
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
    origin: SessionId | None = None
    """Of a fork: whose events it reads, up to those of its own, until it is folded."""
    went_back: bool = False
    folded: bool = False
    tree: TreeRef | None = None
    messages: dict[MessageId, MessageModel] = field(default_factory=dict)
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


class Verdict:
    """Whether all was as it must be so far."""

    def __init__(self) -> None:
        self.broken: Broken | None = None
        """The first thing that was wrong, wherever it was raised."""
        self.stop: Callable[[], object] = bool
        """What ends the run: whoever waits for what is broken now may wait for ever."""

    def fail(self, what: str) -> NoReturn:
        """Remember what is wrong, end the run, and raise it."""
        broken = Broken(what)
        self.broken = self.broken or broken
        self.stop()
        raise broken

    def must(self, holds: bool, line: BranchModel, otherwise: str) -> None:
        """Fail if something does not hold of a line."""
        if not holds:
            self.fail(f"{line.session.name}: {otherwise}")

    def same(self, line: BranchModel, what: str, found: Any, wanted: Any) -> None:
        """Fail if something of a line is not what it must be."""
        if found != wanted:
            self.fail(f"{line.session.name}: {what} is {found!r}, but must be {wanted!r}")
