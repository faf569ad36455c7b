"""The commits of workspaces in an object store that several nodes share.

::

    format                              {"chronicle-store": 2}
    blobs/                              the blob store
    workspaces/<name>/session           the ids of its session
    workspaces/<name>/commits/<seq>     one event of its main branch, sealed; seq in 20 digits

A commit is an object that is created only if its number is free: of two nodes that commit concurrently, one succeeds
and the other gets a conflict. The events are those of the journal, hash-chained, so each node's journal is a copy:
`RemoteCommits.pull` brings it up to date and checks the chain. Several commands of a node may pull concurrently without
a lock: an event that is in the journal already is skipped.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import (
    BranchVersionConflict,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    StoreNotFound,
    UnsupportedFormat,
)
from chronicle.ids import BranchId, SessionId
from chronicle.journal.chain import check_events
from chronicle.journal.event_codec import event_from_object, event_object
from chronicle.journal.records import Commit, Event, Session

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.media.fsspec_objects import RemoteObjects
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.ports.sessions import SessionRecords

__all__ = ["FORMAT", "RemoteCommits"]

FORMAT: Final = 2
"""Of a store whose commits are objects; 1 is a directory with its own journal."""
_OBJECT_FORMAT: Final = 1
"""Of the objects of sessions and commits."""
_FOLDER: Final = "workspaces"
_TOGETHER: Final = 256
"""Commits in one batch of reads."""


class RemoteCommits:
    """The commits of a store in an object store.

    Args:
        objects: the store's, below its URL.
        shown: the store's name in messages.
        here: the directory of its local part.
    """

    def __init__(self, objects: RemoteObjects, shown: str, here: Path) -> None:
        self._objects = objects
        self._shown = shown
        self._here = here

    def create(self) -> None:
        """Create the store if there is none; idempotent under concurrent calls.

        Raises:
            UnsupportedFormat: a newer version created it.
            InvalidInput: the URL has other content.
            Unavailable: it could not be reached.
        """
        with suppress(NotFound):
            self.check_format()
            return
        if not self._objects.names(""):
            with suppress(Conflict):  # another node creates it concurrently
                self._objects.create("format", _dump({"chronicle-store": FORMAT}))
        try:
            self.check_format()  # another node may have created it concurrently
        except NotFound:
            raise InvalidInput(f"{self._shown} has something else in it; name another place") from None

    def check_format(self) -> None:
        """Check that there is a store of a supported format.

        Raises:
            NotFound: there is none.
            Corrupt: its description is malformed.
            UnsupportedFormat: a newer version created it.
            Unavailable: it could not be reached.
        """
        try:
            described = self._objects.read("format")
        except NotFound:
            raise StoreNotFound(f"there is no store at {self._shown}") from None
        try:
            found = int(json.loads(described)["chronicle-store"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(
                f'{self._shown}/format is damaged: it should hold {{"chronicle-store": {FORMAT}}}; write that into it'
            ) from error
        if found > FORMAT:
            raise UnsupportedFormat(
                f"a newer version made the store {self._shown}: its format is {found}, this version reads up to "
                f"{FORMAT}"
            )

    def sizes(self) -> dict[str, int]:
        """Return all objects of the store, with their sizes in bytes."""
        return self._objects.sizes("")

    def ensure_session(self, journal: JournalStore, made: Session) -> Session:
        """Add a workspace's session to the node's journal and return it; the given one if there is none yet."""
        described = {
            "format": _OBJECT_FORMAT,
            "session_id": made.session_id,
            "branch_id": made.main_branch_id,
            "created_ms": made.created_ms,
        }
        try:
            self._objects.create(f"{_FOLDER}/{made.name}/session", _dump(described))
        except Conflict:
            self._take_session(journal, made.name)  # it may be a fork
            return journal.session(made.name)
        return journal.ensure_session(made.name, made.session_id, made.main_branch_id, made.created_ms)

    def create_fork(self, journal: JournalStore, made: Session, workspace: str, branch_id: BranchId, seq: int) -> None:
        """Create the session of a workspace that continues from another one's event, in the node's journal as well.

        Args:
            journal: the node's.
            made: the session.
            workspace: the one whose branch owns the event.
            branch_id: that branch.
            seq: the event's.

        Raises:
            Conflict: a workspace of that name exists.
            Unavailable: the store could not be reached.
        """
        described = {
            "format": _OBJECT_FORMAT,
            "session_id": made.session_id,
            "branch_id": made.main_branch_id,
            "created_ms": made.created_ms,
            "parent": {"workspace": workspace, "branch_id": branch_id, "seq": seq},
        }
        self._objects.create(f"{_FOLDER}/{made.name}/session", _dump(described))
        _fork(journal, branch_id, seq, made)

    def pull(self, journal: JournalStore, only: str | None = None) -> None:
        """Bring a node's journal up to date.

        Args:
            journal: the node's.
            only: the only workspace to bring up to date; all if not given.

        Raises:
            Corrupt: the stored commits do not continue the node's, lack some of them, or were changed.
            Unavailable: the store could not be reached.
        """
        for workspace, there in self._check_complete(journal, only).items():
            if _id_of(journal, workspace) is None:
                self._take_session(journal, workspace)
            self._pull(journal, journal.session(workspace), there)

    def check_complete(self, journal: JournalStore) -> None:
        """Check that the store has all commits that a node's journal has.

        Raises:
            Corrupt: it lacks some; the message says which.
            Unavailable: the store could not be reached.
        """
        self._check_complete(journal, None)

    def lost(self, what: str) -> Corrupt:
        """Return the error for a store that lacks something that this node has."""
        return Corrupt(
            f"{self._shown} lacks {what}. It may have been emptied, or the endpoint be a wrong one; nothing was "
            "written into it. Correct the endpoint, or put the store's objects back. What is not committed is kept on "
            f"this node in {self._here / 'layers'}; to begin anew without it, move {self._here} away"
        )

    def _check_complete(self, journal: JournalStore, only: str | None) -> dict[str, dict[str, int]]:
        """List the workspaces, each with the objects of its commits and their sizes, and check that none is missing."""
        known = {}  # read before the store: a commit is in the store before it is in a journal
        for session in journal.sessions():
            if only in (None, session.name):
                first = journal.branch(session.main_branch_id).parent_seq + 1
                known[session.name] = range(first, journal.head(session.main_branch_id).seq + 1)
        commits: dict[str, dict[str, int]] = {}
        for name, size in self._objects.sizes(f"{_FOLDER}/{only}" if only is not None else _FOLDER).items():
            _, workspace, *rest = name.split("/")
            found = commits.setdefault(workspace, {})
            if rest[0] == "commits":
                found[name] = size
        lost = []
        for workspace, numbers in sorted(known.items(), key=itemgetter(0)):
            there = commits.get(workspace, {})
            missing = [number for number in numbers if _commit_object(workspace, number) not in there]
            if missing:
                which = f"commit {missing[0]}" if len(missing) == 1 else f"commits {missing[0]} to {missing[-1]}"
                if len(missing) != missing[-1] - missing[0] + 1:
                    which = f"{len(missing)} of the {which}"
                lost.append(f"{which} of the workspace {workspace!r}")
            elif workspace not in commits:
                lost.append(f"the workspace {workspace!r}")
        if lost:
            raise self.lost(f"what this node knows: {', '.join(lost)}")
        return commits

    def _take_session(self, journal: JournalStore, workspace: str) -> None:
        """Add the session of a workspace to a node's journal, after the commits that it continues from."""
        made = self._session(workspace)
        parent = self._described(f"{_FOLDER}/{workspace}/session").get("parent")
        if parent is None:
            journal.ensure_session(workspace, made.session_id, made.main_branch_id, made.created_ms)
            return
        try:
            of, branch_id, seq = parent["workspace"], BranchId(parent["branch_id"]), int(parent["seq"])
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"{self._shown}/{_FOLDER}/{workspace}/session cannot be read: {error}") from error
        self.pull(journal, of)
        _fork(journal, branch_id, seq, made)

    def _pull(self, journal: EventRecords, session: Session, there: dict[str, int]) -> None:
        """Add the commits after a session's head, given as objects with their sizes, to the journal."""
        head = journal.head(session.main_branch_id)
        names = sorted(there)
        while batch := names[bisect_right(names, _commit_object(session.name, head.seq)) :][:_TOGETHER]:
            read = self._objects.read_many([(name, 0, there[name]) for name in batch])
            events = tuple(self._event(name, data) for name, data in zip(batch, read, strict=True))
            try:
                after = check_events(head, events)
            except Corrupt as error:
                raise Corrupt(f"the commits of {session.name!r} in {self._shown}: {error}") from error
            try:
                journal.commit(Commit(session.session_id, head, events, epoch=None))
                head = after
            except BranchVersionConflict:  # another command of this node has added some of them concurrently
                head = journal.head(session.main_branch_id)

    def publish(self, workspace: str, event: Event) -> None:
        """Publish a commit to all nodes, durable on return.

        Raises:
            Conflict: another node has committed since; pull first.
            Unavailable: the store could not be reached. `pull` tells whether the commit was published.
        """
        described = event_object(event, erased=False)
        try:
            self._objects.create(
                _commit_object(workspace, event.seq), _dump({"format": _OBJECT_FORMAT, "event": described})
            )
        except Conflict:
            raise Conflict(
                f"another node has committed {workspace!r} meanwhile; unmount and mount it again: what is here and not "
                "committed is then kept in a workspace of its own"
            ) from None

    def _session(self, workspace: str) -> Session:
        found = self._described(f"{_FOLDER}/{workspace}/session")
        try:
            return Session(
                SessionId(found["session_id"]), workspace, BranchId(found["branch_id"]), int(found["created_ms"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"{self._shown}/{_FOLDER}/{workspace}/session cannot be read: {error}") from error

    def _event(self, name: str, data: bytes | NotFound) -> Event:
        found = self._described(name, data)
        try:
            return event_from_object(found["event"], erased=False)
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(f"{self._shown}/{name} cannot be read: {error}") from error

    def _described(self, name: str, data: bytes | NotFound | None = None) -> dict[str, Any]:
        if data is None:
            data = self._objects.read(name)
        if isinstance(data, NotFound):
            raise data
        try:
            found: dict[str, Any] = json.loads(data)
            version = int(found["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{self._shown}/{name} cannot be read: {error}") from error
        if version > _OBJECT_FORMAT:
            raise UnsupportedFormat(
                f"a newer version wrote {self._shown}/{name}: its format is {version}, this version reads up to "
                f"{_OBJECT_FORMAT}"
            )
        return found


def _commit_object(workspace: str, seq: int) -> str:
    return f"{_FOLDER}/{workspace}/commits/{seq:020}"


def _id_of(journal: SessionRecords, workspace: str) -> SessionId | None:
    try:
        return journal.session(workspace).session_id
    except NotFound:
        return None


def _fork(journal: JournalStore, branch_id: BranchId, seq: int, made: Session) -> None:
    """Add the session of a fork to a node's journal, unless another command of this node did so concurrently."""
    try:
        journal.fork_session(branch_id, seq, made.name, made.session_id, made.main_branch_id, made.created_ms)
    except Conflict:
        if _id_of(journal, made.name) != made.session_id:
            raise


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, sort_keys=True).encode() + b"\n"
