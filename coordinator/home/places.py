"""The directories, sockets and locks of a home on this machine, whose paths follow from that of its directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from chronicle.system.locks import is_locked, try_lock, unlock
from coordinator.environment import variables
from coordinator.home.description import is_id
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from podium.address import Address

__all__ = ["HomePlaces"]

_RUN_DIR: Final = "PODIUM_RUN_DIR"
_OWNER: Final = "home"
"""A symlink in a directory that ``PODIUM_RUN_DIR`` names, to the identity of its home: it is made and read at once."""
_RUN_DIR_TRIES: Final = 20
_RUN_DIR_PAUSE_S: Final = 0.1
"""Ray's processes write to their logs until they exit, shortly after the shutdown."""


class HomePlaces:
    """The places of a home. The constructor does no I/O.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._identity: str | None = None
        """Device and inode, equal for all paths of the directory; cached, because the directory may be removed."""
        self._is_service = False
        """Whether the service lock is held by this object."""

    # -- directories ----------------------------------------------------------------------------------------------

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
        if not is_id(found):
            raise HomeError(f"{self._id_path} is not a home id; remove it: podium run creates a new one")
        return found

    @property
    def exists(self) -> bool:
        """Whether the directory has been made one of a home."""
        return self._format_path.exists()

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
        joined = self.joined_cluster()
        if joined is not None and joined != address:
            where = f"on the Ray cluster at {joined}" if joined else "on this machine's own Ray"
            raise HomeError(f"a service of the home {self.path} runs its agents {where}; end it with `podium down`")

    def joined_cluster(self) -> str | None:
        """Return the address of the Ray cluster that the service here has joined; empty for its own.

        ``None`` if no service runs here, or one is starting, or ending.
        """
        if not self.service_alive():
            return None
        with contextlib.suppress(FileNotFoundError):
            return (self.run_dir / "cluster").read_text(encoding="utf-8")
        return None

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

        All paths of an existing home give the same one, also through a symlink or a bind mount; or it is what
        ``PODIUM_RUN_DIR`` says.

        Raises:
            HomeError: another user created it, so it cannot be trusted.
        """
        if given := variables().get(_RUN_DIR):
            parts = [directory := Path(given)]
        else:
            digest = hashlib.sha256(os.fsencode(self._directory_identity)).hexdigest()[:12]
            directory = Path(tempfile.gettempdir()) / f"podium-{os.getuid()}" / digest
            parts = [directory.parent, directory]
        for part in parts:
            try:
                found = part.lstat()
            except FileNotFoundError:
                break
            if found.st_uid != os.getuid() or found.st_mode & 0o022:
                raise HomeError(f"{part} belongs to another user or is writable by others; remove it or set {_RUN_DIR}")
        return directory

    def make_run_dir(self) -> Path:
        """Create `run_dir`; the caller is the home's service.

        Raises:
            HomeError: as `run_dir`; or ``PODIUM_RUN_DIR`` names a directory with other files, or another home's.
        """
        directory = self.run_dir
        for _ in range(_RUN_DIR_TRIES):
            directory.parent.mkdir(mode=0o700, exist_ok=True)  # with parents=True the umask would give its mode
            with contextlib.suppress(FileNotFoundError):  # the ending service of another home removed the parent
                directory.mkdir(mode=0o700, exist_ok=True)
                break
        if _RUN_DIR in variables():
            self._take(self.run_dir)
        return self.run_dir

    def _take(self, directory: Path) -> None:
        """Mark a directory as this home's: what is in it goes when the service ends.

        Raises:
            HomeError: it has other files, or is another home's.
        """
        if any(each.name != _OWNER for each in directory.iterdir()) and not (directory / _OWNER).is_symlink():
            raise HomeError(f"{_RUN_DIR}={directory} has other files, which would be removed: name a new directory")
        with contextlib.suppress(FileExistsError):
            (directory / _OWNER).symlink_to(self._directory_identity)
        if not self._owns(directory):
            raise HomeError(
                f"{_RUN_DIR}={directory} is the directory of another home: name another one for {self.path}"
            )

    def _owns(self, directory: Path) -> bool:
        try:
            return str((directory / _OWNER).readlink()) == self._directory_identity
        except OSError:
            return False

    def remove_run_dir(self) -> None:
        """Remove `run_dir` and its contents, best effort; the caller is the home's service, and ends."""
        directory = self.run_dir
        if _RUN_DIR in variables() and not self._owns(directory):
            return
        for _ in range(_RUN_DIR_TRIES):
            shutil.rmtree(directory, ignore_errors=True)
            if not directory.exists():
                break
            time.sleep(_RUN_DIR_PAUSE_S)
        if _RUN_DIR not in variables():
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
