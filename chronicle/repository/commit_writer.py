"""The steps of a commit: a workspace's session, what opens it, and the commit itself."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from chronicle.errors import BranchVersionConflict, Conflict, NotFound, StorageRefused, Unavailable
from chronicle.ids import IdSource
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, Session
from chronicle.repository.commit_log import COMMITTED, Committed, commits, last_commit, owner_of, session_of
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.layer.opening import MAX_WORKSPACE_ID
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.canonical import Json
    from chronicle.journal.sqlite import SqliteJournalStore
    from chronicle.repository.store_directory import StoreDirectory
    from chronicle.workspace.port import TreeRef

__all__ = ["EPOCH", "ensure_session", "fork_session", "keep_recovered", "put_commit", "spec_of"]

log = logging.getLogger(__name__)

EPOCH: Final = 1
"""There are no leases here, so there is never a second one."""
_KEPT_DIGITS: Final = 12


def ensure_session(place: StoreDirectory, journal: SqliteJournalStore, workspace: str) -> Session:
    """Return a workspace's session; it is made if there is none."""
    now_ms, ids = place.clock.now_ms(), IdSource()
    with suppress(NotFound):
        return journal.session(workspace)
    made = Session(ids.session(now_ms), workspace, ids.branch(now_ms), now_ms)
    shared = place.shared
    if shared is not None:
        shared.check_complete(journal)  # of all workspaces: another one is not to begin in a store that was emptied
        return shared.ensure_session(journal, made)
    return journal.ensure_session(workspace, made.session_id, made.main_branch_id, made.created_ms)


def fork_session(
    place: StoreDirectory, journal: SqliteJournalStore, source: Session, found: Committed | None, target: str
) -> Session:
    """Make a workspace's session, which goes on from a commit of another one; ``None`` for the time before the first.

    Args:
        journal: has the source's commits, and all workspaces whose names are not to be taken.

    Raises:
        Conflict: there is a workspace of that name.
    """
    is_taken = f"there is a workspace {target!r} already; give another name"
    if any(session.name == target for session in journal.sessions()):
        raise Conflict(is_taken)
    now_ms, ids = place.clock.now_ms(), IdSource()
    made = Session(ids.session(now_ms), target, ids.branch(now_ms), now_ms)
    shared = place.shared
    if found is None:
        if shared is not None:
            there = shared.ensure_session(journal, made)
        else:
            there = journal.ensure_session(target, made.session_id, made.main_branch_id, now_ms)
        if there != made:  # someone made it meanwhile
            raise Conflict(is_taken)
        return made
    owner = owner_of(journal, journal.branch(source.main_branch_id), found.turn)
    if shared is not None:
        (of,) = (session.name for session in journal.sessions() if session.session_id == owner.session_id)
        try:
            shared.create_fork(journal, made, of, owner.branch_id, found.turn)
        except Conflict:
            raise Conflict(is_taken) from None
        return made
    return journal.fork_session(
        owner.branch_id, found.turn, target, made.session_id, made.main_branch_id, made.created_ms
    )


def spec_of(place: StoreDirectory, journal: SqliteJournalStore, session: Session) -> LayerSpec:
    """Return what opens a workspace."""
    head = journal.head(session.main_branch_id)
    return LayerSpec(session.name, place.layers, last_commit(journal, head), EPOCH, head.turn + 1)


def put_commit(
    place: StoreDirectory, journal: SqliteJournalStore, session: Session, ref: TreeRef, message: str
) -> Committed:
    """Make a stored tree a workspace's last commit: in the store's URL first, if it has one.

    Raises:
        Conflict: someone else was first.
    """
    head = journal.head(session.main_branch_id)
    now_ms = place.clock.now_ms()
    payload: Json = {"message": message, "tree_id": ref.tree_id, "oplog_id": ref.oplog_id}
    draft = Draft(IdSource().event(now_ms), COMMITTED, payload, head.turn + 1, now_ms)
    events = seal(head, [draft])
    shared = place.shared
    if shared is not None:
        shared.publish(session.name, events[0])
    try:
        journal.commit(Commit(session.session_id, head, events, epoch=None))
    except BranchVersionConflict:
        # What is published another command of this node may have put into the journal already, in a pull.
        if journal.find_event(events[0].event_id) is None:
            raise
    except (StorageRefused, Unavailable) as error:
        if shared is None:
            raise
        log.warning(
            "commit %d of %s is in the store; this node's journal gets it with the next command that can write it: %s",
            head.turn + 1,
            session.name,
            error,
        )
    return Committed(head.turn + 1, now_ms, message, ref)


def keep_recovered(
    place: StoreDirectory, spec: LayerSpec, recovered: TreeRef | None, begin_turn: Callable[[int], None]
) -> None:
    """See to what a workspace held, when it was opened, on top of a commit that is not the last any more.

    To be called in the place's `queue`, or another command could keep it too, and a later turn have begun.

    Args:
        spec: what opened it.
        recovered: see `chronicle.workspace.port.Opened`.
        begin_turn: of the opened workspace; called when nothing can be lost any more.

    Raises:
        Unavailable: the store's URL cannot be reached; it is told again at the next opening.
    """
    if recovered is not None:
        _keep(place, spec.workspace_id, recovered)
        begin_turn(spec.turn)


def _keep(place: StoreDirectory, workspace: str, recovered: TreeRef) -> None:
    """Put what was written on top of a commit that is not the last any more into a workspace of its own.

    That one goes on from the commit, as one that was forked there. What was committed itself, by a process that could
    not tell the workspace of it, is nothing to keep.
    """
    mark = f".kept-{recovered.oplog_id[:_KEPT_DIGITS]}"
    kept = workspace[: MAX_WORKSPACE_ID - len(mark)] + mark
    with place.journal(kept, new=True) as journal:
        if any(commit.ref == recovered for commit in commits(journal, workspace)):
            return
        if all(session.name != kept for session in journal.sessions()):
            stood_on = _stood_on(place, journal, workspace, recovered)
            fork_session(place, journal, session_of(journal, workspace), stood_on, kept)
        if all(commit.ref != recovered for commit in commits(journal, kept)):
            message = f"what {workspace} held when others had gone on"
            put_commit(place, journal, session_of(journal, kept), recovered, message)
    log.warning("what was written to %s and not committed is kept in the workspace %s", workspace, kept)


def _stood_on(
    place: StoreDirectory, journal: SqliteJournalStore, workspace: str, recovered: TreeRef
) -> Committed | None:
    """Return the commit that something was written on top of; ``None`` if there was none yet."""
    with place.blobs() as blobs:
        previous = read_root(blobs, recovered.oplog_id).previous
    return next((commit for commit in commits(journal, workspace) if commit.ref.oplog_id == previous), None)
