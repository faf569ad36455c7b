"""A home: the directory in which one podium keeps everything.

::

    format            the version of this layout
    id                what tells this home from others: 12 random letters and digits
    lock              held by the service while it runs
    starting          held by the client that starts the service
    journal.db        the journal (SQLite), with journal.db-sums and journal.db-heads, what it was when it was closed,
                      and journal.db-reserve, space for when the disk is full
    blobs/            the blob store
    nodes/<node>/     what belongs to one node: layers/, mounts/ (a link for each host), places/ (who has which)
    logs/             of the service and its hosts

Sockets live in a short directory under the system's temporary path (`Home.run_dir`), because a Unix socket's path
may not exceed 107 bytes. Workspaces are seen at short paths too, which depend on the id alone
(`coordinator.fleet.workspace_paths`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from chronicle.errors import Conflict, NotFound
from chronicle.system.atomic_files import create_once, is_partial
from chronicle.system.locks import is_locked, try_lock, unlock
from chronicle.system.permissions import make_private
from podium.errors import HomeError, HomeNotWritable, HomeTooNew

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.sqlite import SqliteJournalStore
    from podium.address import Address

__all__ = ["Home"]

_FORMAT: Final = 1
_FORMAT_OF_URL: Final = 2
"""Of a home whose blobs are at a URL, which it names."""
_RUN_DIR_TRIES: Final = 20
_RUN_DIR_PAUSE_S: Final = 0.1
"""Ray's processes take a moment to end, and write to their logs until then."""
_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH: Final = 12
"""60 bits: not to be guessed by other users, before whom a directory is made that is named by it."""
_ID: Final = re.compile(f"[{_ID_LETTERS}]{{{_ID_LENGTH}}}")
_FIRST_MADE: Final = frozenset({"blobs", "nodes", "logs"})
"""What a home has before it has a format, for a moment or after a crash."""


class Home:
    """A home directory. Making one of these touches nothing.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._blobs_at: str | None = None
        """The URL of its blobs; empty if they are in it, None as long as nobody has looked."""
        self._identity: str | None = None
        """What is the same whatever path leads to the directory; kept, as the directory may be removed meanwhile."""

    # -- making and checking --------------------------------------------------------------------------------------

    def create(self, blobs_url: str = "") -> Home:
        """Make the directory if it is not there, and check that it can be used and written.

        Args:
            blobs_url: where the blobs of a new home are to be, such as ``s3://bucket/prefix``; in the home if empty.

        Raises:
            HomeNotWritable: no permission, a file in the way, a read-only or full disk.
            HomeError: it is something else's directory, or keeps its blobs elsewhere than asked for; or the URL is
                another home's.
            Unavailable: the URL cannot be reached.
            HomeTooNew: a newer version wrote it.
        """
        try:
            make_private(self.path)
            there = [] if self._format_path.exists() else self._foreign()
            if there and not self._format_path.exists():  # else someone else made it just now
                raise HomeError(
                    f"{self.path} is no podium home and not empty (it has {there[0]!r}); give an empty or new "
                    "directory with --home"
                )
            for part in ("blobs", "nodes", "logs"):
                make_private(self.path / part)
            if not self._format_path.exists():
                described: dict[str, object] = {"format": _FORMAT}
                if blobs_url:
                    self._claim(blobs_url)
                    described = {"format": _FORMAT_OF_URL, "blobs": blobs_url.rstrip("/")}
                create_once(self._format_path, json.dumps(described) + "\n")
            if (
                not self._id_path.exists()
            ):  # it is new, of an older version, or a copy that is to be told from its original
                create_once(self._id_path, "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH)) + "\n")
            with self._lock_path.open("a"):
                pass
        except OSError as error:
            raise HomeNotWritable(
                f"the home {self.path} cannot be written ({error.strerror}); give another one with --home, or mend its "
                "owner and permissions"
            ) from error
        opened = self.open()
        if blobs_url and self._blobs_at != blobs_url.rstrip("/"):
            from chronicle.blobs.media.objects import shown_url  # noqa: PLC0415  for this message only

            place = f"at {self._blobs_at}" if self._blobs_at else "in itself"
            raise HomeError(
                f"the home {self.path} keeps its blobs {place}, not at {shown_url(blobs_url)}; give a new home with "
                "--home, or leave PODIUM_BLOBS_URL away"
            )
        return opened

    def _foreign(self) -> list[str]:
        """Return the names of what is not a home's before it has a format."""
        return sorted({found.name for found in self.path.iterdir() if not is_partial(found)} - _FIRST_MADE)

    def _claim(self, blobs_url: str) -> None:
        """Make a URL this home's: what no turn of it needs is freed there, so no other home may keep blobs there."""
        protocol, separator, _ = blobs_url.partition("://")
        if not separator or protocol == "file":
            raise HomeError(f"{blobs_url!r} is no URL of an object store; a home on a disk keeps its blobs in itself")
        from chronicle.blobs.media.fsspec_objects import open_remote  # noqa: PLC0415 - only who has a URL pays for fsspec
        from chronicle.blobs.media.objects import shown_url  # noqa: PLC0415

        objects = open_remote(blobs_url)
        mine = f"{socket.gethostname()}:{self.path}\n".encode()
        try:
            objects.create("home", mine)
        except Conflict:
            other = objects.read("home").decode(errors="replace").strip()
            raise HomeError(
                f"{shown_url(blobs_url)} keeps the blobs of another home, {other}; give another URL"
            ) from None

    def open(self) -> Home:
        """Check that this is a home of a format that can be read.

        Raises:
            HomeError: it is not a home.
            HomeTooNew: a newer version wrote it.
        """
        try:
            described = json.loads(self._format_path.read_text(encoding="utf-8"))
            found = described["format"]
            self._blobs_at = described["blobs"] if found == _FORMAT_OF_URL else ""
        except FileNotFoundError:
            raise HomeError(
                f"{self.path} is not a podium home; run an agent first (podium run), or give the right --home"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HomeError(
                f"{self._format_path} cannot be read ({error}); restore it or take another --home"
            ) from error
        if not isinstance(found, int) or found > _FORMAT_OF_URL:
            raise HomeTooNew(
                f"the home {self.path} has format {found}, this podium reads up to {_FORMAT_OF_URL}: upgrade podium"
            )
        return self

    @property
    def id(self) -> str:
        """What tells this home from others, but from its copies; kept when the home is moved.

        Raises:
            HomeError: it has none, or it cannot be read.
        """
        try:
            found = self._id_path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise HomeError(f"the home {self.path} has no id yet; podium run gives it one") from None
        except (OSError, ValueError) as error:
            raise HomeError(f"{self._id_path} cannot be read ({error}); remove it, and it is made anew") from error
        if not _ID.fullmatch(found):
            raise HomeError(f"{self._id_path} is no id of a home; remove it, and it is made anew")
        return found

    # -- what is in it --------------------------------------------------------------------------------------------

    def journal(self, *, create: bool = True, read_only: bool = False) -> SqliteJournalStore:
        """Open the journal.

        Args:
            create: make it if it is not there.
            read_only: write and make nothing; the home need not be writable.

        Raises:
            HomeError: there is none, and none is to be made.
            Corrupt: it is gone or damaged.
        """
        from chronicle.journal.sqlite import SqliteJournalStore  # noqa: PLC0415  not every command reads it

        try:
            return SqliteJournalStore(self.path / "journal.db", create=create, read_only=read_only, watched=True)
        except NotFound:
            raise HomeError(
                f"no agent has run in the home {self.path} yet: podium run starts one; if one has, its journal.db is "
                "gone: restore it"
            ) from None

    @property
    def blobs_url(self) -> str:
        """The blob store, as a URL."""
        if self._blobs_at is None:
            self.open()
        return self._blobs_at or f"file://{self.path / 'blobs'}"

    def blobs(self) -> BlobStore:
        """Open the blob store."""
        from chronicle.blobs.packs.pack_store import FsspecBlobStore  # noqa: PLC0415  not every command reads blobs

        return FsspecBlobStore(self.blobs_url)

    @property
    def logs(self) -> Path:
        """Where the service and its hosts log."""
        return self.path / "logs"

    def agent_log(self, address: Address) -> Path:
        """Return where an agent's prints, its log and its tracebacks go."""
        return self.logs / f"{address.workspace_id}.log"

    def node(self, node: str) -> Path:
        """Return the directory of one node."""
        return self.path / "nodes" / node

    def has_layers(self) -> bool:
        """Whether some node keeps files of an agent."""
        return any(self.path.glob("nodes/*/layers/*"))

    @property
    def identity(self) -> str:
        """The id, and the device and inode of the directory: a copy of the home has the same id and another identity.

        Moving the home to another file system changes it.

        Raises:
            HomeError: the home has no id.
        """
        return f"{self.id}/{self._directory_identity}"

    @property
    def _directory_identity(self) -> str:
        """Device and inode of the directory, once it is there; its path before that."""
        if self._identity is None:
            with contextlib.suppress(OSError):
                found = self.path.stat()
                self._identity = f"{found.st_dev}:{found.st_ino}"
        return self._identity or str(self.path)

    @property
    def run_dir(self) -> Path:
        """A short directory for sockets and Ray's session, of this user and home alone; there while a service runs.

        A home that is there has one, by whatever path it is named: through a symlink or a bind mount, too.

        Raises:
            HomeError: someone else made it, so it cannot be trusted.
        """
        digest = hashlib.sha256(os.fsencode(self._directory_identity)).hexdigest()[:12]
        directory = Path(tempfile.gettempdir()) / f"podium-{os.getuid()}" / digest
        for part in (directory.parent, directory):
            try:
                found = part.lstat()
            except FileNotFoundError:
                break
            if found.st_uid != os.getuid() or found.st_mode & 0o022:
                raise HomeError(f"{part} belongs to someone else or can be written by others; remove it or set TMPDIR")
        return directory

    def make_run_dir(self) -> Path:
        """Make `run_dir`; the caller is the home's service.

        Raises:
            HomeError: as `run_dir`.
        """
        directory = self.run_dir
        for _ in range(_RUN_DIR_TRIES):
            directory.parent.mkdir(mode=0o700, exist_ok=True)  # with parents=True it would get umask's mode
            with contextlib.suppress(FileNotFoundError):  # the service of another home ended, and took the parent along
                directory.mkdir(mode=0o700, exist_ok=True)
                break
        return self.run_dir

    def remove_run_dir(self) -> None:
        """Remove `run_dir` and all that is in it, as far as it goes; the caller is the home's service, and ends."""
        directory = self.run_dir
        for _ in range(_RUN_DIR_TRIES):
            shutil.rmtree(directory, ignore_errors=True)
            if not directory.exists():
                break
            time.sleep(_RUN_DIR_PAUSE_S)
        with contextlib.suppress(OSError):  # other homes' services have theirs there
            directory.parent.rmdir()

    @property
    def stage_path(self) -> Path:
        """Where a starting service says in a line what it waits for."""
        return self.run_dir / "stage"

    @property
    def socket_path(self) -> Path:
        """The service's socket."""
        return self.run_dir / "service.sock"

    # -- locks ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def service_lock(self) -> Iterator[bool]:
        """Hold the home as its service while the context lasts; the kernel lets go if we die.

        Yields:
            whether it was got: ``False`` when another service holds it.
        """
        with self._lock_path.open("a") as file:
            if not try_lock(file.fileno()):
                yield False
                return
            try:
                yield True
            finally:
                unlock(file.fileno())  # closing leaves it to a child that was forked meanwhile

    def start_alone(self) -> TextIO | None:
        """Become the one client that starts the home's service.

        Returns:
            a file: closing it lets others start one, and so does our death; ``None`` while another client has it.
        """
        file = (self.path / "starting").open("a")  # closed at exec, so that the service does not hold it
        if not try_lock(file.fileno()):
            file.close()
            return None
        return file

    def service_alive(self) -> bool:
        """Whether a service holds this home now."""
        try:
            with self._lock_path.open("r") as file:
                return is_locked(file.fileno())
        except FileNotFoundError:
            return False
        except PermissionError:
            return True

    @property
    def _id_path(self) -> Path:
        return self.path / "id"

    @property
    def _format_path(self) -> Path:
        return self.path / "format"

    @property
    def _lock_path(self) -> Path:
        return self.path / "lock"
