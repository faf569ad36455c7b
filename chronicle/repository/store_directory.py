"""A store on this machine: a directory, or the local part of a store at a URL.

::

    format        the version of this layout
    journal.db    a session a workspace; each commit is an event of its main branch
    blobs/        the blob store
    layers/       uncommitted changes, and cached files
    run/          sockets and the log of the process that serves the mounts, while anything is mounted

A store may also be a URL, such as ``s3://bucket/prefix``: its blobs and commits are there
(`chronicle.repository.remote_commits`), and each node has a directory as above for it, in which the journal is a copy
and there are no blobs.
"""

from __future__ import annotations

import errno
import json
import os
import time
import urllib.parse
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from chronicle.blobs import blob_id
from chronicle.blobs.media.objects import shown_url
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.errors import (
    BlobMissing,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    NotMounted,
    StorageRefused,
    StoreDamaged,
    StoreNotFound,
    StoreRemoved,
    UnsupportedFormat,
)
from chronicle.fuse.mountpoints import mountinfo
from chronicle.journal.opening import open_journal
from chronicle.settings import read_settings
from chronicle.system.atomic_files import create_once, is_partial
from chronicle.system.locks import try_lock, unlock
from chronicle.system.permissions import make_private
from chronicle.workspace.gc_roots import layer_refs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.clock import Clock
    from chronicle.journal.port import JournalStore
    from chronicle.repository.remote_commits import RemoteCommits

__all__ = ["SCHEME", "StoreDirectory"]

_FORMAT: Final = 1
_FORMAT_OF_URL: Final = 2
"""Of a directory whose store is a URL, which it names."""
_REFUSALS: Final = frozenset(
    {errno.EACCES, errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EPERM, errno.EROFS},
)
"""Errors of a usable path that the system refuses at present; others mean that the path itself is unusable."""
SCHEME: Final = "chronicle:"
"""Prefix of the source in the mount table; the store's directory follows, quoted."""
_TURN_DEADLINE_S: Final = 60.0
"""Deadline of `workspace_lock`; a commit of some files takes milliseconds."""
_TURN_POLL_S: Final = 0.01


class StoreDirectory:
    """Locates a store and opens its parts.

    Args:
        directory: of the store. `create` makes it; the other methods require it.
        clock: dates commits.
        url: of the store, if it is not the directory itself. An existing directory has it stored.
    """

    def __init__(self, directory: Path, clock: Clock | None = None, url: str | None = None) -> None:
        self.directory = directory.expanduser().absolute()
        self.clock = clock if clock is not None else SystemClock()
        self._url = url
        self._mounted_at: Path | None = None
        """The mountpoint by which the store was found, if any."""

    @classmethod
    def at(cls, store: str) -> Self:
        """Return the store at a path or URL.

        The local part of a store at a URL is in a directory below ``CHRONICLE_STATE_DIR``, by default
        ``$XDG_STATE_HOME/chronicle``: it has the only copy of uncommitted changes.
        """
        protocol, separator, rest = store.partition("://")
        if not separator:
            return cls(Path(store))
        if protocol == "file":
            return cls(Path(rest))
        if protocol == "memory":
            raise InvalidInput(f"{store!r} is one process's memory, and goes with it; name a directory or another URL")
        if not rest.strip("/"):
            raise InvalidInput(f"{store!r} names no place for a store; give one such as s3://bucket/prefix")
        url = store.rstrip("/")
        states = read_settings().state_dir
        if states is None:
            raise InvalidInput("this user has no home directory; set CHRONICLE_STATE_DIR to a directory")
        return cls(states / blob_id(url.encode())[:16], url=url)

    @property
    def name(self) -> str:
        """The store's path or URL, for messages."""
        return shown_url(self._url) if self._url is not None else os.fspath(self.directory)

    @classmethod
    def around(cls, path: Path) -> Self:
        """Return the store of the mount that contains a path.

        Raises:
            NotFound: the path is in no mount of a store.
        """
        source = mountinfo.source_of(path)
        if source is None or not source.startswith(SCHEME):
            raise NotMounted(f"{path} is not in a mounted workspace")
        store = cls(Path(urllib.parse.unquote(source.removeprefix(SCHEME))))
        store._mounted_at = mountinfo.mountpoint_of(path)
        return store

    # -- making and opening ---------------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the store if it is missing.

        Raises:
            InvalidInput: the directory cannot be created, or has other content.
            StorageRefused: the system refuses to create it.
            Corrupt: this node has a local part of the store at the URL, and the store itself is gone.
            UnsupportedFormat: a newer version wrote it.
        """
        remote = self.remote
        if remote is not None:
            try:
                remote.check_format()
            except NotFound:
                self._check_unknown(remote)
                remote.create()
        described: dict[str, object] = {"chronicle-store": _FORMAT}
        if self._url is not None:
            described = {"chronicle-store": _FORMAT_OF_URL, "url": self._url}
        try:
            make_private(self.directory)
            if not self._format_path.exists():
                crowded = any(not is_partial(path) for path in self.directory.iterdir())
                if crowded and not self._format_path.exists():  # else another command created it concurrently
                    raise InvalidInput(f"{self.directory} is not empty and not a store; name another directory")
                create_once(self._format_path, json.dumps(described) + "\n")
        except OSError as error:
            kind = StorageRefused if error.errno in _REFUSALS else InvalidInput
            raise kind(
                f"{self.directory} cannot be a store: {error.strerror}; mend that, or name another one"
            ) from error
        self.check_format()

    def _check_unknown(self, remote: RemoteCommits) -> None:
        """Refuse to create a missing store at the URL if this node has a local part of it.

        Raises:
            Corrupt: it has; nothing was written.
        """
        if self._journal_path.exists():
            # A journal that another command is creating concurrently, with the store, is still empty.
            with suppress(NotFound), closing(open_journal(str(self._journal_path), read_only=True)) as journal:
                remote.check_complete(journal)
        if next(layer_refs(self.layers), None) is not None:
            with suppress(NotFound):
                remote.check_format()  # another command has created it meanwhile, and committed to it
                return
            raise remote.lost("the commits that the files on this node stand on")

    def check_format(self) -> None:
        """Check that this is a store of a supported format.

        Raises:
            NotFound: there is no store.
            StorageRefused: it cannot be read.
            Corrupt: its description is malformed.
            UnsupportedFormat: a newer version wrote it.
        """
        try:
            described = json.loads(self._format_path.read_text(encoding="utf-8"))
            found = described["chronicle-store"]
            url = described["url"] if found == _FORMAT_OF_URL else None
            if type(found) is not int or found < _FORMAT or not isinstance(url, str | None):
                raise TypeError
        except (FileNotFoundError, NotADirectoryError):
            if self._mounted_at is not None:
                raise self._removed(self._mounted_at) from None
            raise StoreNotFound(f"{self.directory} is no store") from None
        except PermissionError:
            raise StorageRefused(f"{self._format_path} cannot be read; mend its permissions") from None
        except OSError as error:
            raise StorageRefused(f"{self._format_path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(
                f'{self._format_path} is damaged: it should hold {{"chronicle-store": {_FORMAT}}} if the store is this '
                f'directory, and {{"chronicle-store": {_FORMAT_OF_URL}, "url": ...}} with the URL if this is what a '
                "node has of a store at one; write that into it"
            ) from error
        if found > _FORMAT_OF_URL:
            raise UnsupportedFormat(
                f"a newer version made the store {self.directory}: its format is {found}, this version reads up to "
                f"{_FORMAT_OF_URL}"
            )
        if self._url is None:
            self._url = url
        elif url != self._url:
            raise Corrupt(f"{self.directory} is of the store {url}, not of {self.name}; move it away")

    def check_present(self) -> None:
        """Check that the directory of a mounted store still exists.

        Raises:
            NotFound: it does not; the message has the remedy.
        """
        if self._mounted_at is not None and not os.path.lexists(self._format_path):
            raise self._removed(self._mounted_at)

    def _removed(self, mountpoint: Path) -> StoreRemoved:
        return StoreRemoved(
            f"the store {self.directory} of the workspace that is mounted at {mountpoint} was removed or renamed: put "
            "it back, or force an unmount",
            os.fspath(mountpoint),
        )

    def reach(self) -> None:
        """Check that the store exists; the local part of one at a URL is created if missing.

        Raises:
            NotFound, Corrupt, UnsupportedFormat: as `check_format` says.
            Unavailable: the store at the URL could not be reached.
        """
        if self.remote is not None and not self._format_path.exists():
            self.remote.check_format()
            self.create()
        self.check_format()

    @contextmanager
    def shared_lock(self) -> Iterator[None]:
        """Hold the store's lock shared, against `exclusive_lock`.

        Raises:
            NotFound: there is no store.
            Conflict: another process holds it exclusively.
        """
        with self._locked(shared=True) as locked:
            if not locked:
                raise Conflict(f"a garbage collection has locked {self.name}; try again later")
            yield

    @contextmanager
    def exclusive_lock(self) -> Iterator[bool]:
        """Hold the store's lock exclusively if it is free; yield whether it was."""
        with self._locked(shared=False) as locked:
            yield locked

    @contextmanager
    def _locked(self, *, shared: bool) -> Iterator[bool]:
        self.reach()
        with self._format_path.open("rb") as file:
            if not try_lock(file.fileno(), shared=shared):
                yield False
                return
            try:
                yield True
            finally:
                unlock(file.fileno())  # closing leaves it to a child that was forked meanwhile

    @contextmanager
    def workspace_lock(self, workspace: str) -> Iterator[None]:
        """Hold a workspace's lock, for commands that open, mount or seal it; wait for it if necessary.

        A workspace is opened on its last commit: no commit may come between looking it up and opening. A sealed tree is
        adopted: no other seal may come in between.

        Raises:
            Conflict: another command holds it for too long.
            StorageRefused: the workspace's directory cannot be used.
        """
        home = self.layers / workspace
        try:
            home.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageRefused(f"{home} cannot be used: {error.strerror}") from error
        try:
            deadline = time.monotonic() + _TURN_DEADLINE_S
            while not try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise Conflict(
                        f"another command has been committing, comparing, reading or mounting {workspace!r} for "
                        f"{_TURN_DEADLINE_S:.0f} s; wait for it to end, and try again"
                    )
                time.sleep(_TURN_POLL_S)
            yield
        finally:
            with suppress(OSError):
                unlock(descriptor)  # closing leaves it to a child that was forked meanwhile
            os.close(descriptor)

    @property
    def _format_path(self) -> Path:
        return self.directory / "format"

    @property
    def _journal_path(self) -> Path:
        return self.directory / "journal.db"

    @property
    def layers(self) -> Path:
        """The uncommitted changes, and cached files."""
        return self.directory / "layers"

    @property
    def socket(self) -> Path:
        """The socket of the process that serves the mounts."""
        return self.directory / "run" / "zygote.sock"

    @property
    def blobs_url(self) -> str:
        """The URL of the blob store."""
        return f"{self._url}/blobs" if self._url is not None else f"file://{self.directory / 'blobs'}"

    @property
    def remote(self) -> RemoteCommits | None:
        """The commits at the store's URL, if it has one."""
        if self._url is None:
            return None
        from chronicle.blobs.media.fsspec_objects import open_remote  # noqa: PLC0415 - fsspec is slow to import and only needed with a URL
        from chronicle.repository.remote_commits import RemoteCommits  # noqa: PLC0415

        return RemoteCommits(open_remote(self._url), self.name, self.directory)

    @contextmanager
    def journal(self, workspace: str | None = None, *, new: bool = False) -> Iterator[JournalStore]:
        """Open the journal, up to date with the commits of other nodes.

        Args:
            workspace: the only one to bring up to date; all if not given, or if the store has none of that name, since
                the error names the existing ones.
            new: whether it may be a new workspace; then the others are not brought up to date.

        Raises:
            Corrupt: the journal was lost; or commits that this node has are missing at the store's URL.
            StorageRefused: it cannot be written.
        """
        self.reach()
        self._check_not_lost()
        with closing(open_journal(str(self._journal_path))) as journal:
            remote = self.remote
            if remote is not None:
                remote.pull(journal, workspace)
                if workspace is not None and not new and not _has(journal, workspace):
                    remote.pull(journal)
            with self.naming_damaged(workspace):
                yield journal

    @contextmanager
    def read_journal(self, workspace: str | None = None) -> Iterator[JournalStore]:
        """Open the journal for reading: creates nothing and needs no write permission, except for a store at a URL."""
        self.reach()
        if self._url is not None:
            with self.journal(workspace) as journal:
                yield journal
            return
        self._check_not_lost()
        try:
            journal = open_journal(str(self._journal_path), read_only=True)
        except NotFound:
            raise StoreNotFound(f"no workspace was ever mounted from {self.directory}") from None
        with closing(journal), self.naming_damaged(workspace):
            yield journal

    def _check_not_lost(self) -> None:
        """Refuse a store that has packs and no journal: an empty new one would hide them all, and gc free them.

        Raises:
            Corrupt: the journal is lost.
        """
        if self._url is not None:
            return  # the journal is a copy and is rebuilt
        log = self._journal_path.with_name(self._journal_path.name + "-wal")

        def has_journal() -> bool:
            return _size(self._journal_path) > 0 or (self._journal_path.exists() and _size(log) > 0)

        if has_journal() or not any(path.is_file() for path in self.directory.glob("blobs/packs/*/*")):
            return
        if not has_journal():  # else it was created, and then the packs, since the first check
            raise Corrupt(
                f"{self._journal_path} was lost, and with it what the commits of {self.name} are, but not their "
                "content, which is in blobs/packs; put it back from a backup, with journal.db-wal if there is one"
            )

    @contextmanager
    def naming_damaged(self, workspace: str | None) -> Iterator[None]:
        """Name the damaged workspace in the error for a missing blob.

        Args:
            workspace: the one being read; the whole store if not given.

        Raises:
            Corrupt: one is missing.
        """
        try:
            yield
        except BlobMissing as error:
            what = f"workspace {workspace!r}" if workspace is not None else f"the store {self.name}"
            raise StoreDamaged(f"{what} is damaged: {error}; a backup of the store's blobs mends it") from error

    @contextmanager
    def blobs(self, *, kept: bool = True) -> Iterator[PackBlobStore]:
        """Open the blob store.

        Args:
            kept: whether this node's cache of a far store may be used.
        """
        blobs = PackBlobStore(self.blobs_url, cache="node" if kept else None)
        try:
            yield blobs
        finally:
            blobs.close()


def _has(journal: JournalStore, workspace: str) -> bool:
    try:
        journal.session(workspace)
    except NotFound:
        return False
    return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
