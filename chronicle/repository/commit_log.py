"""Reads the commits of a store's workspaces from its journal, and parses the names of moments.

A commit is an event of its workspace's main branch, which has no other events: so its number, its turn and its position
on the branch are equal. A fork continues the branch of its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chronicle.canonical import decode
from chronicle.errors import InvalidInput, NotFound, StoreDamaged
from chronicle.ids import BlobId
from chronicle.workspace.port import TreeRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.branches import BranchRecords
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.ports.sessions import SessionRecords
    from chronicle.journal.records import Branch, Event, Head, Session

__all__ = [
    "COMMITTED",
    "NOW",
    "Committed",
    "commit_at",
    "commits",
    "last_commit",
    "owner_of",
    "parse_moment",
    "session_of",
]

COMMITTED: Final = "workspace.committed"
NOW: Final = "now"
"""The moment of the present, uncommitted state."""
_LAST: Final = "last"
_NAMED: Final = 10
"""Workspaces that the error for a missing one names."""


@dataclass(frozen=True, slots=True)
class Committed:
    """One commit of a workspace."""

    turn: int
    """Its number, from 1, as in `Iteration.turn`."""
    timestamp: int
    """Epoch milliseconds."""
    message: str
    ref: TreeRef


def parse_moment(text: str) -> int | str:
    """Return the number of a commit, 0 for the time before the first one; `NOW`; or ``"last"`` for the last commit.

    Raises:
        InvalidInput: it is malformed.
    """
    name = text.removeprefix("@")
    if name in (NOW, _LAST):
        return name
    if name.isascii() and name.isdecimal():
        return int(name)
    raise InvalidInput(f"{text!r} names no moment: write @3 for commit 3, @last for the last one, or @now")


def session_of(journal: SessionRecords, workspace: str) -> Session:
    """Return a workspace's session.

    Raises:
        NotFound: no such workspace.
    """
    try:
        return journal.session(workspace)
    except NotFound:
        names = sorted(session.name for session in journal.sessions())
        there = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        raise NotFound(f"there is no workspace {workspace!r}; there is {there or 'none yet'}") from None


def commits(journal: JournalStore, workspace: str) -> Iterator[Committed]:
    """Yield a workspace's commits, oldest first, those before it was forked included.

    Raises:
        NotFound: no such workspace.
    """
    branch_id = session_of(journal, workspace).main_branch_id
    for event in journal.events(branch_id, types=[COMMITTED]):
        yield _committed(event)


def commit_at(journal: JournalStore, workspace: str, moment: int | str) -> Committed | None:
    """Return a commit; ``None`` for the time before the first one.

    Args:
        moment: of `parse_moment`, not `NOW`.

    Raises:
        NotFound: no such workspace, or it has no such commit.
    """
    head = journal.head(session_of(journal, workspace).main_branch_id)
    number = head.turn if moment == _LAST else moment
    assert isinstance(number, int), "the caller knows what is now"
    if number == 0:
        return None
    event = next(journal.events(head.branch_id, after_seq=number - 1, to_seq=number), None)
    if event is None:
        has = f"it has commits 1 to {head.turn}" if head.turn else "it has none yet"
        raise NotFound(f"{workspace} has no commit {number}; {has}")
    return _committed(event)


def last_commit(journal: EventRecords, head: Head) -> TreeRef | None:
    """Return the tree of a branch's last event; ``None`` if there is none."""
    event = journal.find_event(head.event_id) if head.event_id is not None else None
    return _committed(event).ref if event is not None else None


def owner_of(journal: BranchRecords, branch: Branch, seq: int) -> Branch:
    """Return the branch that owns an event: this one, or an ancestor."""
    while branch.parent_branch_id is not None and seq <= branch.parent_seq:
        branch = journal.branch(branch.parent_branch_id)
    return branch


def _committed(event: Event) -> Committed:
    payload = decode(event.payload) if event.payload is not None else None
    try:
        values: Any = payload
        ref = TreeRef(BlobId(values["tree_id"]), BlobId(values["oplog_id"]))
        return Committed(event.turn, event.ts, str(values["message"]), ref)
    except (KeyError, TypeError) as error:
        raise StoreDamaged(f"event {event.event_id} has no payload that could be a commit's") from error
