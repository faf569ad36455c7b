"""A store directory: workspaces under version control, with no agent and no service.

::

    format        the version of this layout
    journal.db    a session a workspace; each commit is an event of its main branch
    blobs/        the blob store
    layers/       what is not committed yet, and what was fetched
    run/          sockets and the log of the process that serves the mounts, while anything is mounted

A store may also be a URL, such as ``s3://bucket/prefix``: its blobs and commits are there (`chronicle.shared`), and
each node has a directory as above for it, in which the journal is a copy and there are no blobs.

Workspaces have no lease and one epoch: what keeps two writers apart is the lock on a workspace's layers, which a mount
holds, and the journal's compare-and-swap. What is written stays in the layer, across mounts, until it is committed.
"""

from __future__ import annotations

import json
import logging
import os
import urllib.parse
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chronicle.blobs import blob_id
from chronicle.blobs.fsspec_store import FsspecBlobStore
from chronicle.blobs.objects import shown_url
from chronicle.canonical import decode
from chronicle.checkout import Progress, checkout, count
from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, Conflict, Corrupt, InvalidInput, NotFound, Unavailable, UnsupportedFormat
from chronicle.fuse import available, mounts, zygote
from chronicle.fuse.client import attach_fuse_workspace, list_mounts, open_fuse_workspace, unmount_workspace
from chronicle.ids import BlobId, IdSource
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, Session
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.journal.verify import verify_session
from chronicle.workspace.committed import CommittedWorkspace
from chronicle.workspace.layer_open import check_spec, open_layer
from chronicle.workspace.port import LayerSpec, TreeRef
from chronicle.workspace.tree import EMPTY, Kind, walk
from chronicle.workspace.verify import TreeChecker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.canonical import Json
    from chronicle.clock import Clock
    from chronicle.fuse.client import FuseWorkspace
    from chronicle.journal.records import Event, Head
    from chronicle.shared import SharedRecord
    from chronicle.workspace.layer import Layer

__all__ = ["Check", "Committed", "Repository", "Stats"]

log = logging.getLogger(__name__)

_FORMAT: Final = 1
_FORMAT_OF_URL: Final = 2
"""Of a directory whose store is a URL, which it names."""
_COMMITTED: Final = "workspace.committed"
_EPOCH: Final = 1
"""There are no leases here, so there is never a second one."""
_SCHEME: Final = "chronicle:"


@dataclass(frozen=True, slots=True)
class Committed:
    """One commit of a workspace."""

    turn: int
    """Its number, from 1; what `Iteration.turn` refers to."""
    timestamp: int
    """Epoch milliseconds."""
    message: str
    ref: TreeRef


@dataclass(frozen=True, slots=True)
class Check:
    """What verifying a workspace found."""

    workspace: str
    events: int
    blobs: int
    """How many different blobs its commits reach; each was read and hashed."""
    problem: str | None
    """The first damage; ``None`` if all is as it was written."""


@dataclass(frozen=True, slots=True)
class Stats:
    """How large a workspace is, and how large the store is in which it lies."""

    workspace: str
    commits: int
    files: int
    """In the last commit."""
    logical_bytes: int
    """Of those files."""
    blobs: int
    """Different ones in the whole store."""
    stored_bytes: int
    """On disk, the whole store."""


class Repository:
    """A store directory.

    Args:
        directory: where it is. `create` makes it; the other methods need it to be there.
        clock: dates commits.
        url: of the store, if it is not the directory itself. A directory that was made knows it.
    """

    def __init__(self, directory: Path, clock: Clock | None = None, url: str | None = None) -> None:
        self.directory = directory.expanduser().absolute()
        self._clock = clock if clock is not None else SystemClock()
        self._url = url

    @classmethod
    def at(cls, store: str) -> Repository:
        """Return the store at a path or URL.

        What this node has of a store at a URL is in a directory below ``CHRONICLE_STATE_DIR``, by default
        ``$XDG_STATE_HOME/chronicle``: what was not committed is there and nowhere else.
        """
        protocol, separator, rest = store.partition("://")
        if not separator:
            return cls(Path(store))
        if protocol == "file":
            return cls(Path(rest))
        url = store.rstrip("/")
        home = Path.home()
        base = home / (os.environ.get("XDG_STATE_HOME") or ".local/state")  # an absolute path stays what it is
        states = home / (os.environ.get("CHRONICLE_STATE_DIR") or base / "chronicle")
        return cls(states / blob_id(url.encode())[:16], url=url)

    @property
    def name(self) -> str:
        """The store's path or URL, as messages have it."""
        return shown_url(self._url) if self._url is not None else os.fspath(self.directory)

    @classmethod
    def around(cls, path: Path) -> Repository:
        """Return the store of the mount that a path is in.

        Raises:
            NotFound: it is in no mount of a store.
        """
        source = mounts.source_of(path)
        if source is None or not source.startswith(_SCHEME):
            raise NotFound(f"{path} is not in a mounted workspace; name the store with --store")
        return cls(Path(urllib.parse.unquote(source.removeprefix(_SCHEME))))

    # -- making and opening ---------------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the store if it is not there.

        Raises:
            InvalidInput: the directory cannot be made, or has something else in it.
            UnsupportedFormat: a newer version wrote it.
        """
        if self._shared is not None:
            self._shared.create()
        described: dict[str, object] = {"chronicle-store": _FORMAT}
        if self._url is not None:
            described = {"chronicle-store": _FORMAT_OF_URL, "url": self._url}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if not self._format_path.exists():
                if any(self.directory.iterdir()):
                    raise InvalidInput(f"{self.directory} is not empty and not a store; name another directory")
                replacement = self.directory / f".format-{os.getpid()}"
                replacement.write_text(json.dumps(described) + "\n", encoding="utf-8")
                replacement.replace(self._format_path)
        except OSError as error:
            raise InvalidInput(f"{self.directory} cannot be a store: {error.strerror}; name another one") from error
        self.check_format()

    def check_format(self) -> None:
        """Check that this is a store which this code can read.

        Raises:
            NotFound: it is none.
            Corrupt: it says nothing sensible of itself.
            UnsupportedFormat: a newer version wrote it.
        """
        try:
            described = json.loads(self._format_path.read_text(encoding="utf-8"))
            found = described["chronicle-store"]
            url = described["url"] if found == _FORMAT_OF_URL else None
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"{self.directory} is no store; chronicle mount makes one") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{self._format_path} cannot be read: {error}") from error
        if not isinstance(found, int) or found > _FORMAT_OF_URL:
            raise UnsupportedFormat(f"{self.directory} has format {found}, this is {_FORMAT_OF_URL}: upgrade podium")
        if self._url is None:
            self._url = url
        elif url != self._url:
            raise Corrupt(f"{self.directory} is of the store {url}, not of {self.name}; move it away")

    @property
    def _format_path(self) -> Path:
        return self.directory / "format"

    @property
    def _socket(self) -> Path:
        return self.directory / "run" / "zygote.sock"

    @property
    def _blobs_url(self) -> str:
        return f"{self._url}/blobs" if self._url is not None else f"file://{self.directory / 'blobs'}"

    @property
    def _shared(self) -> SharedRecord | None:
        """What of the store is at its URL, if it has one."""
        if self._url is None:
            return None
        from chronicle.blobs.fsspec_objects import open_remote  # noqa: PLC0415 - only who has a URL pays for fsspec
        from chronicle.shared import SharedRecord  # noqa: PLC0415

        return SharedRecord(open_remote(self._url), self.name)

    @contextmanager
    def _journal(self, workspace: str | None = None) -> Iterator[SqliteJournalStore]:
        """Open the journal, up to date with what other nodes have committed.

        Args:
            workspace: the one that matters; all if not given.
        """
        self.check_format()
        with closing(SqliteJournalStore(self.directory / "journal.db")) as journal:
            shared = self._shared
            if shared is not None:
                shared.pull(journal, workspace)
            yield journal

    @contextmanager
    def _record(self, workspace: str | None = None) -> Iterator[SqliteJournalStore]:
        """Open the journal for reading: nothing is made, and nothing need be writable, but for a store at a URL."""
        if self._url is not None and self._shared is not None and not self._format_path.exists():
            self._shared.check_format()
            self.create()
        self.check_format()
        if self._url is not None:
            with self._journal(workspace) as journal:
                yield journal
            return
        try:
            journal = SqliteJournalStore(self.directory / "journal.db", read_only=True)
        except NotFound:
            raise NotFound(f"no workspace was ever mounted from {self.directory}; chronicle mount makes one") from None
        with closing(journal):
            yield journal

    @contextmanager
    def _blobs(self, *, kept: bool = True) -> Iterator[FsspecBlobStore]:
        """Open the blob store.

        Args:
            kept: whether what this node keeps of a far store will do.
        """
        blobs = FsspecBlobStore(self._blobs_url, cache="node" if kept else None)
        try:
            yield blobs
        finally:
            blobs.close()

    # -- mounts ---------------------------------------------------------------------------------------------------

    def mount(self, workspace: str, mountpoint: Path, *, with_caller: bool) -> None:
        """Mount a workspace; it is made if it is not there.

        Args:
            with_caller: unmount when the calling process ends.

        Raises:
            Unavailable: FUSE cannot be used here, or mounting failed.
            Conflict: it is mounted already.
            InvalidInput: the mountpoint cannot be used.
        """
        reason = available()
        if reason is not None:
            raise Unavailable(reason)
        self.create()
        attached = self._attached(workspace)
        if attached is not None:
            raise InvalidInput(f"workspace {workspace!r} is mounted at {attached.root} already; unmount it first")
        check_spec(LayerSpec(workspace, self._layers, None, _EPOCH, 1))
        with self._journal(workspace) as journal:
            spec = self._spec(journal, self._ensure_session(journal, workspace))
        run = self._socket.parent
        zygote.start(self._socket, run / "mounts", run / "log", until_idle=True)
        source = _SCHEME + urllib.parse.quote(os.fspath(self.directory))
        try:
            opened = open_fuse_workspace(
                self._socket, spec, self._blobs_url, mountpoint, with_caller=with_caller, source=source
            )
            if opened.recovered is not None:
                self._keep(workspace, opened.recovered)
        except ChronicleError:
            # It ends by itself when a mount is gone, but there may never have been one.
            with suppress(Unavailable):
                if not list_mounts(self._socket):
                    zygote.shut_down(self._socket)
            raise

    def unmount(self, mountpoint: Path) -> None:
        """Unmount a workspace; what was written and not committed stays in the store.

        Raises:
            NotFound: nothing of this store is mounted there.
        """
        if zygote.is_running(self._socket) is None:
            raise NotFound(f"nothing of {self.directory} is mounted")
        unmount_workspace(self._socket, mountpoint)

    def _attached(self, workspace: str) -> FuseWorkspace | None:
        """Return a workspace if it is mounted now."""
        if zygote.is_running(self._socket) is None:
            return None
        return attach_fuse_workspace(self._socket, workspace)

    # -- commits --------------------------------------------------------------------------------------------------

    def workspaces(self) -> list[str]:
        """Return the names of the workspaces that were ever mounted or committed."""
        with self._record() as journal:
            return [session.name for session in journal.sessions()]

    def commits(self, workspace: str) -> list[Committed]:
        """Return a workspace's commits, oldest first.

        Raises:
            NotFound: no such workspace.
        """
        with self._record(workspace) as journal:
            return list(_commits(journal, workspace))

    def commit(self, workspace: str, message: str) -> Committed | None:
        """Commit what a workspace holds, mounted or not; ``None`` if nothing changed.

        Raises:
            NotFound: no such workspace.
            BranchVersionConflict: someone else committed at this moment.
            Conflict: another process has the workspace open, and is not this store's mount.
        """
        with self._journal(workspace) as journal, self._opened(journal, workspace) as opened:
            session = journal.session(workspace)
            head = journal.head(session.main_branch_id)
            last = _committed_at(journal, head)
            ref = opened.seal()
            if self._url is not None and last is not None and opened.base != last:
                if ref != last:
                    raise Conflict(
                        f"another node has committed {workspace!r} meanwhile; unmount and mount it again: what is here "
                        "and not committed is then kept in a workspace of its own"
                    )
                opened.adopt(ref)  # our own, whose process did not live to see it
            if ref == last or (last is None and ref.tree_id == EMPTY):
                return None
            done = self._commit(journal, session, ref, message)
            opened.adopt(ref)
            opened.begin_turn(done.turn + 1)
            return done

    def checkout(self, workspace: str, turn: int | None, target: Path, *, progress: bool) -> Committed:
        """Make a directory that holds what a workspace held after a commit; see `chronicle.checkout.checkout`.

        Args:
            workspace: which one.
            turn: the commit's number; the last one if not given.
            target: where.
            progress: whether to say on stderr how far it is.

        Raises:
            NotFound: no such workspace or commit.
        """
        commits = self.commits(workspace)
        found = next((item for item in reversed(commits) if turn in (None, item.turn)), None)
        if found is None:
            wanted = "was never committed" if turn is None else f"has no commit {turn}"
            raise NotFound(f"workspace {workspace!r} {wanted}; chronicle log lists those there are")
        with self._blobs() as blobs:
            if not progress:
                checkout(blobs, found.ref, target, lambda _size, _files: None)
                return found
            line = Progress(count(blobs, found.ref))
            try:
                checkout(blobs, found.ref, target, line.report)
            finally:
                line.end()
        return found

    def _ensure_session(self, journal: SqliteJournalStore, workspace: str) -> Session:
        """Return a workspace's session; it is made if there is none."""
        now_ms, ids = self._clock.now_ms(), IdSource()
        made = Session(ids.session(now_ms), workspace, ids.branch(now_ms), now_ms)
        shared = self._shared
        if shared is not None:
            made = shared.ensure_session(made)
        return journal.ensure_session(workspace, made.session_id, made.main_branch_id, made.created_ms)

    def _commit(self, journal: SqliteJournalStore, session: Session, ref: TreeRef, message: str) -> Committed:
        """Make a stored tree a workspace's last commit: in the store's URL first, if it has one.

        Raises:
            Conflict: someone else was first.
        """
        head = journal.head(session.main_branch_id)
        now_ms = self._clock.now_ms()
        payload: Json = {"message": message, "tree_id": ref.tree_id, "oplog_id": ref.oplog_id}
        draft = Draft(IdSource().event(now_ms), _COMMITTED, payload, head.turn + 1, now_ms)
        events = seal(head, [draft])
        shared = self._shared
        if shared is not None:
            shared.publish(session.name, events[0])
        journal.commit(Commit(session.session_id, head, events, epoch=None))
        return Committed(head.turn + 1, now_ms, message, ref)

    def _keep(self, workspace: str, recovered: TreeRef) -> None:
        """Put what was written on top of a commit that is not the last any more into a workspace of its own."""
        kept = f"{workspace}.kept-{recovered.tree_id[:12]}"
        with self._journal(kept) as journal:
            session = self._ensure_session(journal, kept)
            if _committed_at(journal, journal.head(session.main_branch_id)) != recovered:
                self._commit(journal, session, recovered, f"what {workspace} held when others had gone on")
        log.warning("what was written to %s and not committed is kept in the workspace %s", workspace, kept)

    @contextmanager
    def opened(self, workspace: str) -> Iterator[FuseWorkspace | Layer | CommittedWorkspace]:
        """Open a workspace to read it as it is now, what is not committed included: through its mount if it has one.

        In a store that cannot be written there is only what was committed; `CommittedWorkspace.complete` tells whether
        that is all.

        Raises:
            NotFound: no such workspace.
            Conflict: another process has the workspace open, and is not this store's mount.
        """
        with self._record(workspace) as journal:
            session = journal.session(workspace)
            layer = self._layers / workspace
            if os.access(
                layer / "lock", os.W_OK
            ):  # a mounted workspace has it, and who may talk to its server may write
                with self._opened(journal, workspace) as opened:
                    yield opened
                return
            base = self._spec(journal, session).base
        with self._blobs() as blobs:
            yield CommittedWorkspace(blobs, base, complete=not layer.exists())

    @contextmanager
    def _opened(self, journal: SqliteJournalStore, workspace: str) -> Iterator[FuseWorkspace | Layer]:
        session = journal.session(workspace)
        attached = self._attached(workspace)
        if attached is not None:
            try:
                yield attached
            finally:
                attached.detach()
            return
        with self._blobs() as blobs:
            layer, recovered = open_layer(self._spec(journal, session), blobs, self._clock)
            if recovered is not None:
                self._keep(workspace, recovered)
            try:
                yield layer
            finally:
                layer.close()

    def _spec(self, journal: SqliteJournalStore, session: Session) -> LayerSpec:
        """Return what opens a workspace."""
        head = journal.head(session.main_branch_id)
        return LayerSpec(session.name, self._layers, _committed_at(journal, head), _EPOCH, head.turn + 1)

    @property
    def _layers(self) -> Path:
        return self.directory / "layers"

    # -- checking and counting ------------------------------------------------------------------------------------

    def verify(self) -> Iterator[Check]:
        """Check each workspace: its chain of commits, and every blob that they reach, read back and hashed."""
        with self._record() as journal, self._blobs(kept=False) as blobs:
            for session in journal.sessions():
                report = verify_session(journal, session)
                problem = str(report.damage) if report.damage is not None else None
                checker = TreeChecker(blobs)
                if problem is None:
                    problem = _damaged_commit(checker, _commits(journal, session.name))
                yield Check(session.name, report.events, checker.blobs, problem)

    def stats(self, workspace: str) -> Stats:
        """Count a workspace's last commit, and the store.

        Raises:
            NotFound: no such workspace.
        """
        commits = self.commits(workspace)
        with self._blobs() as blobs:
            files = logical_bytes = 0
            if commits:
                for _, entry in walk(blobs, commits[-1].ref.tree_id):
                    if entry.kind is Kind.FILE and entry.content is not None:
                        files += 1
                        logical_bytes += entry.content.size
            shared = self._shared
            if shared is not None:
                stored = sum(size for name, size in shared.sizes().items() if name.startswith("blobs/"))
            else:
                files_of = (path for path in self.directory.glob("blobs/**/*") if path.is_file())
                stored = sum(path.stat().st_blocks * 512 for path in files_of)
            count = sum(1 for _ in blobs.blob_ids())
        return Stats(workspace, len(commits), files, logical_bytes, count, stored)


def _writable(directory: Path) -> bool:
    """Whether a directory, and what is in it, can be written by this process."""
    return all(os.access(path, os.W_OK) for path in (directory, *directory.rglob("*")) if not path.is_symlink())


def _commits(journal: SqliteJournalStore, workspace: str) -> Iterator[Committed]:
    branch_id = journal.session(workspace).main_branch_id
    for event in journal.events(branch_id, types=[_COMMITTED]):
        payload = _payload(event)
        yield Committed(event.turn, event.ts, str(payload["message"]), _ref(payload))


def _committed_at(journal: SqliteJournalStore, head: Head) -> TreeRef | None:
    """Return the tree of a branch's last event; ``None`` if there is none."""
    event = journal.find_event(head.event_id) if head.event_id is not None else None
    return _ref(_payload(event)) if event is not None else None


def _payload(event: Event) -> dict[str, Any]:
    payload = decode(event.payload) if event.payload is not None else None
    if not isinstance(payload, dict):
        raise Corrupt(f"event {event.event_id} has no payload that could be a commit's; chronicle verify says more")
    return payload


def _ref(payload: dict[str, Any]) -> TreeRef:
    return TreeRef(BlobId(payload["tree_id"]), BlobId(payload["oplog_id"]))


def _damaged_commit(checker: TreeChecker, commits: Iterator[Committed]) -> str | None:
    """Read what commits reach, and return what is wrong with the first that is damaged."""
    for commit in commits:
        try:
            checker.check(commit.ref)
        except (Corrupt, NotFound) as error:
            return f"commit {commit.turn}: {error}"
    return None
