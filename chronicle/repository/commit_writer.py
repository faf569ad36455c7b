"""Writes to the record of a store: the sessions of workspaces, their forks and their commits."""

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
from chronicle.workspace.layer.workspace_home import MAX_WORKSPACE_ID
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.canonical import Json
    from chronicle.journal.port import JournalStore
    from chronicle.repository.store_directory import StoreDirectory
    from chronicle.workspace.port import TreeRef

__all__ = ["EPOCH", "ensure_session", "fork_session", "keep_recovered", "put_commit", "spec_of"]

log = logging.getLogger(__name__)

EPOCH: Final = 1
"""Without leases there is never a second one."""
_KEPT_DIGITS: Final = 12


def ensure_session(store: StoreDirectory, journal: JournalStore, workspace: str) -> Session:
    """Return a workspace's session; it is created if missing."""
    now_ms, ids = store.clock.now_ms(), IdSource()
    with suppress(NotFound):
        return journal.session(workspace)
    made = Session(ids.session(now_ms), workspace, ids.branch(now_ms), now_ms)
    remote = store.remote
    if remote is not None:
        remote.check_complete(journal)  # of all workspaces: no other one may start in a store that was emptied
        return remote.ensure_session(journal, made)
    return journal.ensure_session(workspace, made.session_id, made.main_branch_id, made.created_ms)


def fork_session(
    store: StoreDirectory, journal: JournalStore, source: Session, found: Committed | None, target: str
) -> Session:
    """Create the session of a workspace that continues from a commit of another one; ``None`` for an empty start.

    Args:
        journal: has the source's commits, and all workspaces whose names are taken.

    Raises:
        Conflict: a workspace of that name exists.
    """
    is_taken = f"there is a workspace {target!r} already; give another name"
    if any(session.name == target for session in journal.sessions()):
        raise Conflict(is_taken)
    now_ms, ids = store.clock.now_ms(), IdSource()
    made = Session(ids.session(now_ms), target, ids.branch(now_ms), now_ms)
    remote = store.remote
    if found is None:
        if remote is not None:
            there = remote.ensure_session(journal, made)
        else:
            there = journal.ensure_session(target, made.session_id, made.main_branch_id, now_ms)
        if there != made:  # another command created it concurrently
            raise Conflict(is_taken)
        return made
    owner = owner_of(journal, journal.branch(source.main_branch_id), found.turn)
    if remote is not None:
        (of,) = (session.name for session in journal.sessions() if session.session_id == owner.session_id)
        try:
            remote.create_fork(journal, made, of, owner.branch_id, found.turn)
        except Conflict:
            raise Conflict(is_taken) from None
        return made
    return journal.fork_session(
        owner.branch_id, found.turn, target, made.session_id, made.main_branch_id, made.created_ms
    )


def spec_of(store: StoreDirectory, journal: JournalStore, session: Session) -> LayerSpec:
    """Return the spec for opening a workspace."""
    head = journal.head(session.main_branch_id)
    return LayerSpec(session.name, store.layers, last_commit(journal, head), EPOCH, head.turn + 1)


def put_commit(store: StoreDirectory, journal: JournalStore, session: Session, ref: TreeRef, message: str) -> Committed:
    """Append a commit of a stored tree to a workspace: at the store's URL first, if it has one.

    Raises:
        Conflict: a concurrent commit was first.
    """
    head = journal.head(session.main_branch_id)
    now_ms = store.clock.now_ms()
    payload: Json = {"message": message, "tree_id": ref.tree_id, "oplog_id": ref.oplog_id}
    draft = Draft(IdSource().event(now_ms), COMMITTED, payload, head.turn + 1, now_ms)
    events = seal(head, [draft])
    remote = store.remote
    if remote is not None:
        remote.publish(session.name, events[0])
    try:
        journal.commit(Commit(session.session_id, head, events, epoch=None))
    except BranchVersionConflict:
        # Another command of this node may have pulled the published commit into the journal already.
        if journal.find_event(events[0].event_id) is None:
            raise
    except (StorageRefused, Unavailable) as error:
        if remote is None:
            raise
        log.warning(
            "commit %d of %s is in the store; this node's journal gets it with the next command that can write it: %s",
            head.turn + 1,
            session.name,
            error,
        )
    return Committed(head.turn + 1, now_ms, message, ref)


def keep_recovered(
    store: StoreDirectory, spec: LayerSpec, recovered: TreeRef | None, begin_turn: Callable[[int], None]
) -> None:
    """Keep what an opening recovered: uncommitted changes on top of a commit that is not the last any more.

    To be called under `StoreDirectory.workspace_lock`, or another command could keep it too, and begin a later turn.

    Args:
        spec: of the opening.
        recovered: see `chronicle.workspace.port.Opened`.
        begin_turn: of the opened workspace; called once nothing can be lost any more.

    Raises:
        Unavailable: the store's URL cannot be reached; the next opening recovers it again.
    """
    if recovered is not None:
        _keep(store, spec.workspace_id, recovered)
        begin_turn(spec.turn)


def _keep(store: StoreDirectory, workspace: str, recovered: TreeRef) -> None:
    """Commit changes on top of a commit that is not the last any more to a workspace of their own.

    It continues from that commit like a fork. A recovered tree that is itself a commit, of a process that died before
    it told the workspace, is not kept.
    """
    suffix = f".kept-{recovered.oplog_id[:_KEPT_DIGITS]}"
    kept = workspace[: MAX_WORKSPACE_ID - len(suffix)] + suffix
    with store.journal(kept, new=True) as journal:
        if any(commit.ref == recovered for commit in commits(journal, workspace)):
            return
        if all(session.name != kept for session in journal.sessions()):
            stood_on = _stood_on(store, journal, workspace, recovered)
            fork_session(store, journal, session_of(journal, workspace), stood_on, kept)
        if all(commit.ref != recovered for commit in commits(journal, kept)):
            message = f"what {workspace} held when others had gone on"
            put_commit(store, journal, session_of(journal, kept), recovered, message)
    log.warning("what was written to %s and not committed is kept in the workspace %s", workspace, kept)


def _stood_on(store: StoreDirectory, journal: JournalStore, workspace: str, recovered: TreeRef) -> Committed | None:
    """Return the commit that was the base of a recovered tree; ``None`` if there was none yet."""
    with store.blobs() as blobs:
        previous = read_root(blobs, recovered.oplog_id).previous
    return next((commit for commit in commits(journal, workspace) if commit.ref.oplog_id == previous), None)
