"""Maintenance of a whole store: verification, statistics and garbage collection."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.packs.pack_checker import PackChecker
from chronicle.errors import Corrupt, NotFound, StoreInUse, StoreShared, Unavailable
from chronicle.fuse.zygote import launcher
from chronicle.journal.verify import verify_session
from chronicle.repository.commit_log import commits
from chronicle.settings import read_settings
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.gc_roots import layer_refs
from chronicle.workspace.history.commit_reachability import CommitReach
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.layer.disk.trim import layer_bytes, trim_layers
from chronicle.workspace.layer.workspace_home import lock_workspace, unlock_workspace
from chronicle.workspace.trees.tree import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.gc.collector import GcReport
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Session
    from chronicle.repository.store_directory import StoreDirectory
    from chronicle.workspace.port import TreeRef

__all__ = ["Check", "Stats", "collect_garbage", "count", "verify"]

_READS: Final = 3
"""Attempts to read the journal at one moment, beside commands that open it for a commit each."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of verifying a workspace."""

    workspace: str
    events: int
    blobs: int
    """Different blobs that its commits reach and no workspace verified before reached; each was read and hashed."""
    problem: str | None
    """The first damage; ``None`` without any. Damage of a pack whose blobs themselves are sound comes last, and is
    reported for the workspace for which the pack was read first."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The size of a workspace and of its store."""

    workspace: str
    commits: int
    files: int
    """In the last commit: regular files, a file of several names as often as it has names."""
    logical_bytes: int
    """Of those files."""
    history_bytes: int
    """Of the files of all its commits, as if each commit were stored by itself."""
    blobs: int
    """Different ones in the whole store."""
    unique_bytes: int
    """Of those, before compression."""
    stored_bytes: int
    """The blobs of the whole store, on disk or at its URL."""
    layer_bytes: int
    """On the disk of this node, in addition: the uncommitted changes of all workspaces, and committed files that are
    cached."""


def verify(store: StoreDirectory) -> Iterator[Check]:
    """Check each workspace: its chain of commits, and every blob that they reach, read back and hashed once."""
    with store.read_journal() as journal, store.blobs(kept=False) as blobs:
        reader = PackChecker(blobs)
        checker = TreeChecker(reader)
        for session in journal.sessions():
            report = verify_session(journal, session)
            problem = str(report.damage) if report.damage is not None else None
            before = checker.blobs
            if problem is None:
                problem = _damaged_commit(checker, journal, session) or reader.problem()
            yield Check(session.name, report.events, checker.blobs - before, problem)
            if problem is not None:
                checker = TreeChecker(reader)  # blobs that count as checked may refer to unchecked ones


def count(store: StoreDirectory, workspace: str) -> Stats:
    """Count a workspace's commits, and the store.

    Raises:
        NotFound: no such workspace.
    """
    with store.read_journal(workspace) as journal:
        found = list(commits(journal, workspace))
    with store.blobs() as blobs:
        history_bytes = 0
        for commit in found:
            history_bytes += read_root(blobs, commit.ref.oplog_id).usage.bytes
        files = logical_bytes = 0
        if found:
            for size in _file_sizes(blobs, found[-1].ref.tree_id):
                files += 1
                logical_bytes += size
        sizes = blobs.blob_sizes()
        remote = store.remote
        if remote is not None:
            stored = sum(size for name, size in remote.sizes().items() if name.startswith("blobs/"))
        else:
            files_of = (path for path in store.directory.glob("blobs/**/*") if path.is_file())
            stored = sum(path.stat().st_blocks * 512 for path in files_of)
    return Stats(
        workspace=workspace,
        commits=len(found),
        files=files,
        logical_bytes=logical_bytes,
        history_bytes=history_bytes,
        blobs=len(sizes),
        unique_bytes=sum(sizes.values()),
        stored_bytes=stored,
        layer_bytes=layer_bytes(store.layers),
    )


def collect_garbage(store: StoreDirectory, *, alone: bool = False, dry_run: bool = False) -> GcReport:
    """Free blobs that are not reachable from a commit of any workspace, a mounted workspace or uncommitted changes.

    Args:
        alone: in one call instead of two an hour apart; the store must not be in use. Cached committed files of
            workspaces are trimmed to their limit as well.
        dry_run: change nothing.

    Raises:
        Conflict: ``alone``, and a workspace is mounted or another process uses the store; or other nodes share the
            store, whose uncommitted changes are unknown here.
        Corrupt, NotFound: a reachable blob is damaged, so that reachability is unknown.
    """
    store.reach()
    with ExitStack() as stack:
        if store.remote is not None and not dry_run:
            raise StoreShared(
                f"what other nodes hold and have not committed to {store.name} is not known here, so nothing is freed"
            )
        if alone and not dry_run:
            if not stack.enter_context(store.exclusive_lock()) or launcher.is_running(store.socket) is not None:
                raise StoreInUse(f"{store.name} is in use; unmount its workspaces first")
            warm_bytes = read_settings().warm_bytes(is_far=False)  # a store at a URL is refused above
            for home in sorted(store.layers.glob("*")) if store.layers.is_dir() else ():
                stack.callback(unlock_workspace, lock_workspace(home))
                with suppress(OSError):  # such as a full disk: the next opening trims it
                    trim_layers(home, warm_bytes)
        return collect(
            store.blobs_url,
            lambda: _reached(store),
            GcRules(alone=alone, dry_run=dry_run, keep_from=1.0 if alone else 0.5),
            roots=lambda: "\n".join(sorted({f"{ref.tree_id} {ref.oplog_id}" for ref in _roots(store)})),
        )


def _reached(store: StoreDirectory) -> set[BlobId]:
    with store.blobs() as blobs:
        reach = CommitReach(blobs)
        for ref in _roots(store):
            reach.add(ref)
        return reach.ids()


def _roots(store: StoreDirectory) -> list[TreeRef]:
    """Return the roots: the trees of layers, and all commits; read again if a journal at rest was written meanwhile."""
    for _ in range(_READS - 1):
        with suppress(Unavailable):
            return list(_roots_now(store))
    return list(_roots_now(store))


def _roots_now(store: StoreDirectory) -> Iterator[TreeRef]:
    if store.layers.is_dir():  # before the journal: a tree that a layer sealed may be committed meanwhile
        yield from layer_refs(store.layers)
    with store.read_journal() as journal:
        for session in journal.sessions():
            for commit in commits(journal, session.name):
                yield commit.ref


def _file_sizes(reader: BlobReader, tree_id: BlobId) -> Iterator[int]:
    for _, entry in walk(reader, tree_id):
        if entry.content is not None:
            yield entry.content.size


def _damaged_commit(checker: TreeChecker, journal: JournalStore, session: Session) -> str | None:
    """Check all commits, and return the problem of the first damaged one."""
    for commit in commits(journal, session.name):
        try:
            checker.check(commit.ref)
        except (Corrupt, NotFound) as error:
            return f"commit {commit.turn}: {error}"
    return None
