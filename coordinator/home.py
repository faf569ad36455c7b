"""A home: the directory that holds all persistent data of one podium, or says where it is.

::

    format            the version of this layout
    id                identity of this home: 12 random letters and digits
    lock              lock file, locked by the service while it runs
    starting          lock file, locked by the client that starts the service
    node              lock file, locked by `podium node` while it runs
    journal.db        the journal (SQLite), with journal.db-sums and journal.db-heads, its checksums and heads at the
                      last close, and journal.db-reserve, space reserved for a full disk
    blobs/            the blob store
    nodes/<node>/     data of one node: layers/, used/ (records of layers in use), mounts/ (a symlink per host),
                      bundles/ (code of deploys)
    places/           lock files of the workspace paths on this machine
    models.json       the profiles of models, without keys; models.db: the records of their calls (SQLite)
    logs/             logs of the service and its hosts
    generation        what this node has seen of a database server that has the journal

The journal may be in PostgreSQL, then with the records beside it, and the blobs in an object store. Such a directory
holds what belongs to this machine, and the id of the home, which the database has, too.

Sockets live in a short directory under the system's temporary path (`Home.run_dir`), because a Unix socket's path
may not exceed 107 bytes. Workspaces appear at short paths too, which are derived from the id alone
(`coordinator.host.node.workspace_paths`).
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from chronicle.errors import Conflict, Corrupt, NotFound, OlderFormat, OlderVersionRuns
from chronicle.journal.places import without_password
from chronicle.system.atomic_files import create_once, is_partial, replacing, sync_directory, sync_file
from chronicle.system.locks import is_locked, try_lock, unlock
from chronicle.system.permissions import make_private
from chronicle.system.secrets_held import keep_secrets
from coordinator.environment import variables
from podium.errors import HomeError, HomeNotWritable, HomeTooNew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.blobs.media.fsspec_objects import RemoteObjects
    from chronicle.blobs.port import BlobStore
    from chronicle.journal.opening import StoredJournal
    from podium.address import Address

__all__ = ["Home", "Identity"]

_FORMAT: Final = 1
_FORMAT_WITH_URL: Final = 2
"""Format of a home whose blobs or journal are at a URL; the format file contains the URLs, without a password."""
_RUN_DIR_TRIES: Final = 20
_RUN_DIR_PAUSE_S: Final = 0.1
"""Ray's processes write to their logs until they exit, shortly after the shutdown."""
_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH: Final = 12
"""60 bits: other users cannot guess the id, and so cannot create the directory of that name first."""
_ID: Final = re.compile(f"[{_ID_LETTERS}]{{{_ID_LENGTH}}}")
_NAMES_BEFORE_FORMAT: Final = frozenset({"blobs", "nodes", "logs", "id"})
"""What may exist before the format file: during creation, or after a crash in it."""
_MOVED: Final = ("journal.db*", "access.db*", "models.db*", "models.json", "quarantine.json", "drained.json", "blobs")
"""What a home has elsewhere after it was moved."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The home that a database has."""

    home_id: str
    blobs: str
    """URL of its blobs."""
    is_moving: bool = False
    """Whether it is being moved to the database: no other directory may be of it yet."""


class Home:
    """A home directory. The constructor does no I/O.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._urls: _Urls | None = None
        """``None`` before the format file is read."""
        self._identity: str | None = None
        """Device and inode, equal for all paths of the directory; cached, because the directory may be removed."""
        self._is_service = False
        """Whether the service lock is held by this object."""

    # -- making and checking --------------------------------------------------------------------------------------

    def create(
        self, blobs_url: str = "", journal_url: str = "", identify: Callable[[str, Identity], Identity] | None = None
    ) -> Home:
        """Create the directory if it does not exist, and check that it is usable and writable.

        Args:
            blobs_url: where a new home stores its blobs, such as ``s3://bucket/prefix``; in the home if empty.
            journal_url: where a new home keeps its journal, such as ``postgresql://user@host/database``; in the home
                if empty. If a home is there, this becomes another directory of it.
            identify: gives the database at the URL a home unless it has one, and returns which it has; needed for a
                new home with a journal at a URL (`coordinator.homes.opening.create_home`).

        Raises:
            HomeNotWritable: no permission, a file in the way, a read-only or full disk.
            HomeError: the directory contains something else, or a home with other URLs, or another home than the
                database; or a URL is claimed by another home.
            InvalidInput: a URL cannot be used; see `chronicle.blobs.media.medium_check` and
                `chronicle.journal.opening`.
            Unavailable: a URL cannot be reached.
            HomeTooNew: a newer version wrote it.
        """
        asked = _Urls(blobs_url.rstrip("/"), without_password(journal_url.rstrip("/")))
        with self._writing():
            make_private(self.path)
            there = [] if self._format_path.exists() else self._foreign_names()
            if there and not self._format_path.exists():  # else another process created the home meanwhile
                raise HomeError(
                    f"{self.path} is not a podium home and not empty (it has {there[0]!r}); give an empty or new "
                    "directory with --home"
                )
            for part in ("blobs", "nodes", "logs"):
                make_private(self.path / part)
            if not self._format_path.exists():
                if asked.journal:
                    assert identify is not None, "a new home with a journal at a URL has to be identified"
                    asked = self._join(asked, identify(journal_url, self._proposed(asked)))
                elif asked.blobs:
                    self.claim(asked.blobs, f"{socket.gethostname()}:{self.path}")
                create_once(self._format_path, asked.described)
            # No id: the home is new, of an older version, or a copy whose id was removed to make it distinct.
            if not self._id_path.exists():
                create_once(self._id_path, f"{_new_id()}\n")
            with self._lock_path.open("a"):
                pass
        opened = self.open()
        self._check_urls(blobs_url.rstrip("/"), asked.journal)
        return opened

    def _check_urls(self, blobs_url: str, journal_url: str) -> None:
        """Raise if the home has other URLs than those that were asked for."""
        had = self._urls_read
        for asked, url, what in ((journal_url, had.journal, "journal"), (blobs_url, had.blobs, "blobs")):
            if asked and asked != url:
                from chronicle.blobs.media.objects import shown_url  # noqa: PLC0415  for this message only

                place = f"at {url}" if url else "in its own directory"
                raise HomeError(
                    f"the home {self.path} keeps its {what} {place}, not at {shown_url(asked)}; give a new home with "
                    f"--home, move this one (podium migrate), or unset PODIUM_{what.upper()}_URL, or {what} in "
                    "podium.toml"
                )

    def _proposed(self, asked: _Urls) -> Identity:
        """Return the identity for a database that has no home yet."""
        return Identity(self.id if self._id_path.exists() else _new_id(), asked.blobs)

    def _join(self, asked: _Urls, found: Identity) -> _Urls:
        """Make this a directory of the home that a database has; return its URLs."""
        create_once(self._id_path, f"{found.home_id}\n")
        if self.id != found.home_id:
            raise HomeError(
                f"{asked.journal} has the home {found.home_id}, and {self.path} is a directory of {self.id}; give "
                "another URL, or another directory with --home"
            )
        self.claim(found.blobs, found.home_id)
        return _Urls(found.blobs, asked.journal)

    def take_id(self, home_id: str) -> None:
        """Give a directory that is to be a home, such as a copy, the id of another one; durable on return.

        Raises:
            HomeNotWritable: the directory cannot be written.
        """
        with self._writing():
            create_once(self._id_path, f"{home_id}\n")

    def complete_copy(self) -> None:
        """Make a directory that has a copy of a home's journal and blobs, and its id, a home; durable on return.

        Raises:
            HomeNotWritable: the directory cannot be written.
        """
        with self._writing():
            for part in ("blobs", "nodes", "logs"):
                make_private(self.path / part)
            with self._lock_path.open("a"):
                pass
            create_once(self._format_path, _Urls().described)
        self.open()

    def move_to(self, blobs_url: str, journal_url: str) -> None:
        """Have the journal and the blobs elsewhere from now on; durable on return.

        Args:
            blobs_url: where the blobs are.
            journal_url: where the journal is.

        Raises:
            HomeNotWritable: the directory cannot be written.
        """
        with self._writing():
            with replacing(self._format_path) as new:
                new.write_text(_Urls(blobs_url, without_password(journal_url)).described, encoding="utf-8")
                sync_file(new)
            sync_directory(self.path)
        self._urls = None
        self.open()

    def set_moved_aside(self) -> None:
        """Set aside what a home that was moved had in its directory, in ``moved/``; durable on return, and idempotent.

        Raises:
            HomeNotWritable: the directory cannot be written.
        """
        aside = self.path / "moved"
        with self._writing():
            make_private(aside)
            for pattern in _MOVED:
                for found in self.path.glob(pattern):
                    if not (aside / found.name).exists():  # else it is the empty directory that has taken its place
                        found.rename(aside / found.name)
            make_private(self.path / "blobs")
            sync_directory(aside)
            sync_directory(self.path)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HomeNotWritable(
                f"the home {self.path} cannot be written ({error.strerror}); give another one with --home, or fix its "
                "owner and permissions"
            ) from error

    def _foreign_names(self) -> list[str]:
        """Return the names of entries that no home without a format file has."""
        return sorted({found.name for found in self.path.iterdir() if not is_partial(found)} - _NAMES_BEFORE_FORMAT)

    def claim(self, blobs_url: str, mine: str) -> None:
        """Claim a URL for this home.

        Garbage collection deletes the blobs at the URL that no turn of this home reaches, so homes cannot share one.

        Args:
            blobs_url: the URL of an object store.
            mine: the name of the home.

        Raises:
            HomeError: it is claimed by another home, or not that of an object store.
            InvalidInput: the store cannot be used; see `chronicle.blobs.media.medium_check`.
            Unavailable: it cannot be reached.
        """
        from chronicle.blobs.media.medium_check import check_medium  # noqa: PLC0415  for URLs only
        from chronicle.clock import SystemClock  # noqa: PLC0415

        objects = _store_at(blobs_url)
        check_medium(objects, SystemClock())
        try:
            objects.create("home", f"{mine}\n".encode())
        except Conflict:
            if self._urls_read.blobs != blobs_url:
                self.check_claim(blobs_url, mine)
            objects.delete("home")  # this directory has claimed it by another name
            objects.create("home", f"{mine}\n".encode())

    def check_claim(self, blobs_url: str, mine: str) -> None:
        """Check that a URL can be used, and is not claimed by another home.

        Args:
            blobs_url: the URL of an object store.
            mine: the name of the home.

        Raises:
            HomeError: it is, or it is not that of an object store.
            InvalidInput, Unavailable: as `claim`.
        """
        from chronicle.blobs.media.medium_check import check_medium  # noqa: PLC0415  for URLs only
        from chronicle.blobs.media.objects import shown_url  # noqa: PLC0415
        from chronicle.clock import SystemClock  # noqa: PLC0415

        objects = _store_at(blobs_url)
        check_medium(objects, SystemClock())
        try:
            other = objects.read("home").decode(errors="replace").strip()
        except NotFound:
            return
        if other != mine:
            raise HomeError(f"{shown_url(blobs_url)} keeps the blobs of another home, {other}; give another URL")

    def open(self) -> Home:
        """Check that this is a home of a supported format.

        Raises:
            HomeError: it is not a home.
            Corrupt: its description is damaged.
            HomeTooNew: a newer version wrote it.
        """
        try:
            text = self._format_path.read_text(encoding="utf-8")
            described = json.loads(text)
            found = described["format"]
            urls = described.get("blobs", ""), described.get("journal", "")
            self._urls = _Urls(*urls)
            is_damaged = text != self._urls.described or not all(isinstance(url, str) for url in urls)
        except FileNotFoundError:
            raise HomeError(
                f"{self.path} is not a podium home; run an agent first (podium run), or give the right --home"
            ) from None
        except OSError as error:
            raise HomeError(
                f"{self._format_path} cannot be read ({error.strerror}); mend its permissions, or take another --home"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError):
            found, is_damaged = None, True
        if isinstance(found, int) and found > _FORMAT_WITH_URL:
            raise HomeTooNew(
                f"the home {self.path} has format {found}, this podium reads up to {_FORMAT_WITH_URL}: upgrade podium"
            )
        if is_damaged:
            raise Corrupt(
                f"{self._format_path} is damaged: it should hold one line, {_Urls().described.strip()} if the home "
                f"keeps all in its directory, {_Urls('URL').described.strip()} with the URL if not its blobs, and "
                f"{_Urls('URL', 'URL').described.strip()} if not its journal either; write that in it"
            )
        return self

    @property
    def id(self) -> str:
        """The identity of this home. Moving the home keeps it; a copy of the home has the same one.

        Raises:
            HomeError: the home has no id, or the id cannot be read.
        """
        try:
            found = self._id_path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise HomeError(f"the home {self.path} has no id yet; podium run creates one") from None
        except (OSError, ValueError) as error:
            raise HomeError(
                f"{self._id_path} cannot be read ({error}); remove it: podium run creates a new one"
            ) from error
        if not _ID.fullmatch(found):
            raise HomeError(f"{self._id_path} is not a home id; remove it: podium run creates a new one")
        return found

    # -- contents ------------------------------------------------------------------------------------------------

    def journal(self, *, create: bool = True, read_only: bool = False) -> StoredJournal:
        """Open the journal. One of an older format is migrated, but not under a running service of an older version.

        One in a server is migrated here only if older versions can go on using it.

        Args:
            create: create the journal if it does not exist; one in a server exists since the home does.
            read_only: write and create nothing; the home need not be writable.

        Raises:
            HomeError: it does not exist, and ``create`` is false or it is in a server.
            Corrupt: it is missing or damaged.
            OlderVersionRuns: it has an older format, and a service runs: one of this version migrates it at its start.
            HomeError: it is in a server, and has an older format that has to be upgraded first.
        """
        from chronicle.journal.opening import open_journal  # noqa: PLC0415  not every command opens it

        if self.is_shared:
            keep_secrets()
        try:
            return open_journal(
                self.journal_url,
                create=create and not self.is_shared,
                read_only=read_only,
                watched=True,
                may_migrate=lambda: not self.is_shared and (self._is_service or not self.service_alive()),
            )
        except (OlderFormat, OlderVersionRuns) as error:
            if not self.is_shared:
                raise
            raise HomeError(
                f"the home at {without_password(self.journal_url)} has an older format: podium upgrade shows what it "
                "would change there"
            ) from error
        except NotFound as error:
            if self.is_shared:
                raise HomeError(
                    f"the journal of the home at {without_password(self.journal_url)} is missing ({error}): restore it"
                ) from error
            raise HomeError(
                f"no agent has run in the home {self.path} yet: podium run starts one; if one has, its journal.db is "
                "missing: restore it"
            ) from None

    @property
    def _urls_read(self) -> _Urls:
        if self._urls is None and self._format_path.exists():  # else it is being made
            self.open()
        return self._urls or _Urls()

    @property
    def format(self) -> int:
        """The format of the directory."""
        return self._urls_read.format

    @property
    def journal_url(self) -> str:
        """The journal, as `chronicle.journal.opening.open_journal` takes it.

        ``PODIUM_JOURNAL_URL`` may name the same place with a password, which the home does not keep.
        """
        url = self._urls_read.journal
        named = variables().get("PODIUM_JOURNAL_URL", "")
        return named if url and without_password(named) == url else url or str(self.path / "journal.db")

    @property
    def is_shared(self) -> bool:
        """Whether other directories may be of this home, too, because its journal is in a database server."""
        return bool(self._urls_read.journal)

    @property
    def blobs_url(self) -> str:
        """The blob store, as a URL."""
        return self._urls_read.blobs or f"file://{self.path / 'blobs'}"

    def blobs(self, *, kept: bool = True) -> BlobStore:
        """Open the blob store.

        Args:
            kept: whether this node's cache of a far store may be used.
        """
        from chronicle.blobs.packs.pack_store import PackBlobStore  # noqa: PLC0415  not every command reads blobs

        return PackBlobStore(self.blobs_url, cache="node" if kept else None)

    @property
    def logs(self) -> Path:
        """Directory of the logs of the service and its hosts."""
        return self.path / "logs"

    def agent_log(self, address: Address) -> Path:
        """Return the path of the file with an agent's output, log and tracebacks."""
        return self.logs / f"{address.workspace_id}.log"

    def node(self, node: str) -> Path:
        """Return the directory of one node."""
        return self.path / "nodes" / node

    @property
    def places(self) -> Path:
        """Directory of the lock files of workspace paths."""
        return self.path / "places"

    def note_cluster(self, address: str) -> None:
        """Note which Ray cluster the service has joined, for `check_cluster`."""
        (self.run_dir / "cluster").write_text(address, encoding="utf-8")

    def check_cluster(self, address: str) -> None:
        """Check that no service runs which has its agents elsewhere than on the Ray cluster at an address.

        Raises:
            HomeError: one does.
        """
        if not self.service_alive():
            return
        with contextlib.suppress(FileNotFoundError):  # it is starting, or ending
            joined = (self.run_dir / "cluster").read_text(encoding="utf-8")
            if joined != address:
                where = f"on the Ray cluster at {joined}" if joined else "on this machine's own Ray"
                raise HomeError(f"a service of the home {self.path} runs its agents {where}; end it with `podium down`")

    def has_layers(self) -> bool:
        """Whether a node has a layer of an agent's workspace."""
        return any(self.path.glob("nodes/*/layers/*"))

    @property
    def identity(self) -> str:
        """The id, and the device and inode of the directory: a copy has the same id and another identity.

        Moving the home to another file system changes it.

        Raises:
            HomeError: the home has no id.
        """
        return f"{self.id}/{self._directory_identity}"

    @property
    def _directory_identity(self) -> str:
        """Device and inode of the directory; its path while the directory does not exist."""
        if self._identity is None:
            with contextlib.suppress(OSError):
                found = self.path.stat()
                self._identity = f"{found.st_dev}:{found.st_ino}"
        return self._identity or str(self.path)

    @property
    def run_dir(self) -> Path:
        """A short directory for sockets and Ray's session, private to this user and home; exists while a service runs.

        All paths of an existing home give the same one, also through a symlink or a bind mount.

        Raises:
            HomeError: another user created it, so it cannot be trusted.
        """
        digest = hashlib.sha256(os.fsencode(self._directory_identity)).hexdigest()[:12]
        directory = Path(tempfile.gettempdir()) / f"podium-{os.getuid()}" / digest
        for part in (directory.parent, directory):
            try:
                found = part.lstat()
            except FileNotFoundError:
                break
            if found.st_uid != os.getuid() or found.st_mode & 0o022:
                raise HomeError(f"{part} belongs to another user or is writable by others; remove it or set TMPDIR")
        return directory

    def make_run_dir(self) -> Path:
        """Create `run_dir`; the caller is the home's service.

        Raises:
            HomeError: as `run_dir`.
        """
        directory = self.run_dir
        for _ in range(_RUN_DIR_TRIES):
            directory.parent.mkdir(mode=0o700, exist_ok=True)  # with parents=True the umask would give its mode
            with contextlib.suppress(FileNotFoundError):  # the ending service of another home removed the parent
                directory.mkdir(mode=0o700, exist_ok=True)
                break
        return self.run_dir

    def remove_run_dir(self) -> None:
        """Remove `run_dir` and its contents, best effort; the caller is the home's service, and ends."""
        directory = self.run_dir
        for _ in range(_RUN_DIR_TRIES):
            shutil.rmtree(directory, ignore_errors=True)
            if not directory.exists():
                break
            time.sleep(_RUN_DIR_PAUSE_S)
        with contextlib.suppress(OSError):  # not empty: services of other homes run
            directory.parent.rmdir()

    @property
    def stage_path(self) -> Path:
        """File in which a starting service reports its stage, one line."""
        return self.run_dir / "stage"

    @property
    def socket_path(self) -> Path:
        """The service's socket."""
        return self.run_dir / "service.sock"

    @property
    def models_socket(self) -> Path:
        """The socket of the model gateway; there while a service runs."""
        return self.run_dir / "models.sock"

    # -- locks ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def service_lock(self) -> Iterator[bool]:
        """Hold the home's service lock while the context lasts; the kernel releases it when this process dies.

        Yields:
            whether the lock was acquired: ``False`` if another service holds it.
        """
        with _locking(self._lock_path) as held:
            self._is_service = held
            try:
                yield held
            finally:
                self._is_service = False

    @contextlib.contextmanager
    def node_lock(self) -> Iterator[bool]:
        """Hold the lock of this directory's ``podium node``, as `service_lock`."""
        with _locking(self._node_path) as held:
            yield held

    def start_alone(self) -> TextIO | None:
        """Acquire the lock of the client that starts the home's service.

        Returns:
            the locked file: closing it, or the death of this process, releases the lock; ``None`` while another client
            holds it.
        """
        file = (self.path / "starting").open("a")  # closed at exec, so the service does not inherit the lock
        if not try_lock(file.fileno()):
            file.close()
            return None
        return file

    def service_alive(self) -> bool:
        """Whether a service holds this home's lock now."""
        return _is_held(self._lock_path)

    def node_alive(self) -> bool:
        """Whether ``podium node`` runs on this directory now."""
        return _is_held(self._node_path)

    @property
    def _id_path(self) -> Path:
        return self.path / "id"

    @property
    def _format_path(self) -> Path:
        return self.path / "format"

    @property
    def _lock_path(self) -> Path:
        return self.path / "lock"

    @property
    def _node_path(self) -> Path:
        return self.path / "node"


@dataclass(frozen=True, slots=True)
class _Urls:
    """Where the parts of a home are; empty: in its directory."""

    blobs: str = ""
    journal: str = ""
    """Without a password."""

    @property
    def described(self) -> str:
        """The content of the format file."""
        urls = {name: url for name, url in (("blobs", self.blobs), ("journal", self.journal)) if url}
        return json.dumps({"format": self.format, **urls}) + "\n"

    @property
    def format(self) -> int:
        """The format of the home's directory."""
        return _FORMAT_WITH_URL if self.blobs or self.journal else _FORMAT


def _store_at(blobs_url: str) -> RemoteObjects:
    """Return an object store.

    Raises:
        HomeError: the URL is not that of one.
        InvalidInput, Unavailable: it cannot be used, or not be reached.
    """
    protocol, separator, _ = blobs_url.partition("://")
    if not separator or protocol == "file":
        raise HomeError(
            f"{blobs_url!r} is not the URL of an object store; without one a home keeps its blobs in its own directory"
        )
    from chronicle.blobs.media.fsspec_objects import open_remote  # noqa: PLC0415  for URLs only

    return open_remote(blobs_url)


@contextlib.contextmanager
def _locking(path: Path) -> Iterator[bool]:
    with path.open("a") as file:
        if not try_lock(file.fileno()):
            yield False
            return
        try:
            yield True
        finally:
            unlock(file.fileno())  # closing would leave it to a child forked meanwhile


def _is_held(path: Path) -> bool:
    try:
        with path.open("r") as file:
            return is_locked(file.fileno())
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


def _new_id() -> str:
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
