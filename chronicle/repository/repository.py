"""A store: workspaces under version control, without an agent or a service.

Workspaces have no lease and one epoch: two writers are kept apart by the lock on a workspace's layers, which a mount
holds, and by the journal's compare-and-swap. Writes stay in the layer, across mounts, until they are committed.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from chronicle.blobs.buffer import ScratchBuffer
from chronicle.errors import Conflict, InvalidInput, NoCommit, StorageRefused, Unavailable
from chronicle.repository import commit_writer, mounts
from chronicle.repository.checkout import checkout, count
from chronicle.repository.commit_log import (
    NOW,
    Committed,
    commit_at,
    commits,
    last_commit,
    parse_moment,
    session_of,
)
from chronicle.repository.store_directory import StoreDirectory
from chronicle.workspace.api.workspace import open_api_workspace
from chronicle.workspace.committed.workspace import CommittedWorkspace
from chronicle.workspace.layer.history_reader import encode_path
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.restore import restored_tree
from chronicle.workspace.layer.workspace_home import workspace_home
from chronicle.workspace.port import LayerSpec, TreeRef
from chronicle.workspace.trees.tree import EMPTY
from chronicle.workspace.trees.tree_diff import changes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.blobs.port import BlobReader
    from chronicle.fuse.server.client import FuseWorkspace
    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Session
    from chronicle.repository.checkout import Progress
    from chronicle.workspace.api.workspace import ApiWorkspace
    from chronicle.workspace.dir.restore import LeftOut
    from chronicle.workspace.layer.layer import Layer
    from chronicle.workspace.port import Quota
    from chronicle.workspace.trees.tree_diff import Change

__all__ = ["Repository"]

log = logging.getLogger(__name__)


class Repository(StoreDirectory):
    """A store and the operations on its workspaces. For its arguments see `StoreDirectory`."""

    # -- commits --------------------------------------------------------------------------------------------------

    def workspaces(self) -> list[str]:
        """Return the names of all workspaces that were mounted, committed or forked."""
        with self.read_journal() as journal:
            return [session.name for session in journal.sessions()]

    def commits(self, workspace: str) -> list[Committed]:
        """Return a workspace's commits, oldest first, those before it was forked included.

        Raises:
            NotFound: no such workspace.
        """
        with self.read_journal(workspace) as journal:
            return list(commits(journal, workspace))

    def commit_of(self, workspace: str, moment: str) -> TreeRef | None:
        """Return the commit of a workspace at a moment; ``None`` before its first commit.

        Args:
            moment: see `parse_moment`; not `NOW`.

        Raises:
            NotFound: no such workspace or commit.
            InvalidInput: the moment is malformed.
        """
        with self.read_journal(workspace) as journal:
            return _ref_at(journal, workspace, moment)

    def commit(self, workspace: str, message: str) -> Committed | None:
        """Commit a workspace's content, mounted or not; ``None`` if nothing changed.

        Raises:
            NotFound: no such workspace.
            BranchVersionConflict: another command committed concurrently.
            Conflict: another process has the workspace open, and is not this store's mount.
        """
        done: Committed | None = None
        try:
            with self.shared_lock(), self.journal(workspace) as journal, self._sealing(journal, workspace) as opened:
                session = session_of(journal, workspace)
                last = last_commit(journal, journal.head(session.main_branch_id))
                if self.remote is not None and last is not None and opened.base != last:
                    raise Conflict(
                        f"another node has committed {workspace!r} meanwhile; unmount and mount it again: what is here "
                        "and not committed is then kept in a workspace of its own"
                    )
                ref = opened.seal()
                if ref == last or (last is None and ref.tree_id == EMPTY):
                    return None
                done = commit_writer.put_commit(self, journal, session, ref, message)
                opened.adopt(ref)
                opened.begin_turn(done.turn + 1)
        except (OSError, StorageRefused, Unavailable) as error:
            if done is None:
                raise
            log.warning(  # it is durable, whatever fails until the workspace is closed
                "commit %d of %s is made, but the workspace could not be told, or not be closed; the next command that "
                "commits or compares it does that: %s",
                done.turn,
                workspace,
                error,
            )
        return done

    def fork(self, workspace: str, moment: str, target: str) -> Committed | None:
        """Create a workspace that continues from a commit of another one; O(1) in files and commits.

        It has that commit's files, their history, and the commits up to it. Uncommitted changes are not in it.

        Args:
            moment: see `parse_moment`; not `NOW`.
            target: its name.

        Returns:
            the commit that it continues from; ``None`` for none.

        Raises:
            NotFound: no such workspace or commit.
            InvalidInput: the name is malformed, or the moment is no commit.
            Conflict: a workspace of that name exists.
        """
        workspace_home(LayerSpec(target, self.layers, None, commit_writer.EPOCH, 1))
        with self.journal() as journal:
            source = session_of(journal, workspace)
            found = commit_at(journal, workspace, _committed_moment(moment))
            commit_writer.fork_session(self, journal, source, found, target)
            return found

    @contextmanager
    def used(self, workspace: str, quota: Quota | None = None) -> Iterator[ApiWorkspace]:
        """Open a workspace for use by calls in this process; it is created if missing, and so is the store.

        It is locked meanwhile. Uncommitted changes stay in the store; commit them afterwards.

        Raises:
            Conflict: it is mounted, or another process has it open.
            InvalidInput: the name is malformed.
        """
        workspace_home(LayerSpec(workspace, self.layers, None, commit_writer.EPOCH, 1))
        self.create()
        with (
            self.shared_lock(),
            self.journal(workspace, new=True) as journal,
            self.blobs() as blobs,
            ExitStack() as stack,
        ):
            session = commit_writer.ensure_session(self, journal, workspace)
            with self.workspace_lock(workspace):
                spec = replace(commit_writer.spec_of(self, journal, session), quota=quota)
                opened = stack.enter_context(open_api_workspace(spec, blobs, self.clock))
                commit_writer.keep_recovered(self, spec, opened.recovered, opened.begin_turn)
            yield opened

    # -- comparing and restoring -----------------------------------------------------------------------------------

    @contextmanager
    def compared(self, workspace: str, before: str, after: str) -> Iterator[tuple[BlobReader, list[Change]]]:
        """Compare a workspace at two moments; the reader has the contents of both.

        Args:
            before, after: see `parse_moment`.

        Raises:
            NotFound: no such workspace or commit.
            InvalidInput: a moment is malformed.
            Conflict: another process has the workspace open, and its uncommitted state is compared.
        """
        ids = []
        for moment in (before, after):
            if parse_moment(moment) == NOW:
                ids.append(self._now(workspace))
            else:
                ref = self.commit_of(workspace, moment)
                ids.append(ref.tree_id if ref is not None else EMPTY)
        with self.naming_damaged(workspace), self.blobs() as blobs:
            yield blobs, changes(blobs, *ids)

    def _now(self, workspace: str) -> BlobId:
        """Return the tree of a workspace's present content, uncommitted changes included."""
        with self.opened(workspace, sealing=True) as opened:
            if isinstance(opened, CommittedWorkspace):
                return opened.tree_id
            return opened.seal().tree_id

    def restore(self, workspace: str, moment: str, path: str = "", *, dry_run: bool = False) -> list[Change]:
        """Restore a path of a workspace, or all of it, from a commit, mounted or not. The result is not committed.

        Args:
            moment: see `parse_moment`; not `NOW`.
            path: relative to the workspace's root; ``""`` for everything.
            dry_run: change nothing.

        Returns:
            the changes, made or with ``dry_run`` pending.

        Raises:
            NotFound: no such workspace or commit, or the commit has no such path.
            InvalidInput: the path or moment is malformed.
            StorageRefused: the workspace would be over its quota, or the disk is full.
            Conflict: another process has the workspace open, and is not this store's mount.
        """
        raw = encode_path(path)
        with self.shared_lock(), self.journal(workspace) as journal, self._sealing(journal, workspace) as opened:
            then = _ref_at(journal, workspace, moment)
            now = opened.seal()
            with self.blobs() as blobs:
                buffer = ScratchBuffer(blobs)
                wanted = restored_tree(buffer, now.tree_id, then.tree_id if then is not None else EMPTY, raw)
                found = changes(buffer, now.tree_id, wanted)
            if found and not dry_run:
                opened.restore(then, raw)
            return found

    def checkout(
        self, workspace: str, moment: str, target: Path, progress: Progress | None = None
    ) -> tuple[Committed, list[LeftOut]]:
        """Write a commit of a workspace into a new directory.

        See `chronicle.repository.checkout.checkout`.

        Args:
            workspace: which one.
            moment: see `parse_moment`; not `NOW`.
            target: the directory.
            progress: receives the progress; for the total, the tree is walked first.

        Returns:
            the commit, and the properties that were left out.

        Raises:
            NotFound: no such workspace or commit.
        """
        with self.read_journal(workspace) as journal:
            found = commit_at(journal, workspace, _committed_moment(moment))
        if found is None:
            raise NoCommit(f"workspace {workspace!r} had no files before its first commit")
        with self.naming_damaged(workspace), self.blobs() as blobs:
            if progress is None:
                return found, checkout(blobs, found.ref, target, lambda _size, _files: None)
            progress.start(count(blobs, found.ref))
            return found, checkout(blobs, found.ref, target, progress.advance)

    @contextmanager
    def opened(self, workspace: str, *, sealing: bool = False) -> Iterator[FuseWorkspace | Layer | CommittedWorkspace]:
        """Open a workspace to read its present state, uncommitted changes included: through its mount if it has one.

        In a read-only store only committed content is visible; `is_unseen` tells whether there is more.

        Args:
            sealing: whether the caller seals it.

        Raises:
            NotFound: no such workspace.
            Conflict: another process has the workspace open, and is not this store's mount.
        """
        with self.read_journal(workspace) as journal:
            session = session_of(journal, workspace)
            layer = self.layers / workspace
            if os.access(
                layer / "lock", os.W_OK
            ):  # a mounted workspace has it, and who may talk to its server may write
                with self._sealing(journal, workspace) if sealing else self._opened(journal, workspace) as opened:
                    yield opened
                return
            base = last_commit(journal, journal.head(session.main_branch_id))
        with self.naming_damaged(workspace), self.blobs() as blobs:
            yield CommittedWorkspace(blobs, base)

    def is_unseen(self, workspace: str) -> bool:
        """Whether a workspace may have uncommitted changes that `opened` cannot see: the store is another user's."""
        layer = self.layers / workspace
        try:
            opened = any((epoch / "log").exists() for epoch in layer.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            return True
        return opened and not os.access(layer / "lock", os.W_OK)

    @contextmanager
    def _sealing(self, journal: JournalStore, workspace: str) -> Iterator[FuseWorkspace | Layer]:
        """Open a workspace to seal it: its base is its last commit, and no other command seals it meanwhile.

        Otherwise the other's seal could come between this one's and its adoption, which requires the last seal.

        Raises:
            Conflict: another command takes too long.
        """
        session = session_of(journal, workspace)
        with self.workspace_lock(workspace), self._opened(journal, workspace, queued=True) as opened:
            head = journal.head(session.main_branch_id)
            last = last_commit(journal, head)
            with suppress(InvalidInput):  # the last commit is another node's
                # Our own commit, if its process died before it had told the workspace all of it.
                if last is not None and opened.base != last:
                    opened.adopt(last)
                opened.begin_turn(head.turn + 1)
            yield opened

    @contextmanager
    def _opened(
        self, journal: JournalStore, workspace: str, *, queued: bool = False
    ) -> Iterator[FuseWorkspace | Layer]:
        """Open a workspace, through its mount if it has one.

        Args:
            queued: whether the caller holds the `workspace_lock` already.
        """
        session = session_of(journal, workspace)
        attached = mounts.attached(self, workspace)
        with ExitStack() as stack:
            if (
                attached is None or attached.recovered is not None
            ):  # the process that mounted it may have died before it kept what was recovered
                if attached is not None:
                    attached.detach()
                queueing = stack.enter_context(ExitStack())
                if not queued:
                    queueing.enter_context(self.workspace_lock(workspace))
                attached = self._attached_and_kept(journal, session)  # it may be mounted by now
                if attached is not None:
                    queueing.close()
                else:  # nobody else can open it before it is closed: others wait for that
                    blobs = stack.enter_context(self.blobs())
                    spec = commit_writer.spec_of(self, journal, session)
                    layer, recovered = open_layer(spec, blobs, self.clock)
                    stack.callback(layer.close)
                    commit_writer.keep_recovered(self, spec, recovered, layer.begin_turn)
            if attached is not None:
                stack.callback(attached.detach)
            yield attached if attached is not None else layer

    def _attached_and_kept(self, journal: JournalStore, session: Session) -> FuseWorkspace | None:
        """Return a workspace if it is mounted, after keeping what was recovered."""
        attached = mounts.attached(self, session.name)
        if attached is not None:
            spec = commit_writer.spec_of(self, journal, session)
            try:
                commit_writer.keep_recovered(self, spec, attached.recovered, attached.begin_turn)
            except BaseException:
                attached.detach()
                raise
        return attached


def _committed_moment(moment: str) -> int | str:
    named = parse_moment(moment)
    if named == NOW:
        raise InvalidInput("what is now is not committed; commit it first, or name a commit such as @3 or @last")
    return named


def _ref_at(journal: JournalStore, workspace: str, moment: str) -> TreeRef | None:
    found = commit_at(journal, workspace, _committed_moment(moment))
    return found.ref if found is not None else None
