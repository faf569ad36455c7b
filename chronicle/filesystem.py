"""An fsspec file system of workspaces: ``chronicle://``.

Two kinds of these file systems:

* *Moments* of a store, read-only. The path begins with the name of a workspace at a moment::

      chronicle://@12/data.csv            commit 12 of the workspace "main"
      chronicle://side@12/data.csv        of the workspace "side"
      chronicle://side/data.csv           its last commit
      chronicle://@12/data.csv::file:///srv/store      the store as a part of the URL

  with ``store="/srv/store"`` where it is not a part of the URL. What is not committed is not in it.

* An open workspace (`ChronicleFileSystem(workspace=…)`, see `chronicle.workspace.api.workspace`): paths are its own,
  and it can be written.

``chronicle://`` itself is registered for a subclass (`coordinator.filesystem`) that knows agents, too. Errors are those
that fsspec expects: ``FileNotFoundError`` for what is not there, ``OSError`` with EROFS for writing to the past.
"""

from __future__ import annotations

import errno
import os
import threading
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, Protocol, cast

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import InvalidInput, NotFound
from chronicle.repository import Repository
from chronicle.workspace.committed.files import CommittedFiles
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.api.workspace import ApiWorkspace, Status
    from chronicle.workspace.port import Iteration, TreeRef

__all__ = ["ChronicleFileSystem", "Moments", "StoreMoments"]

_TYPES: Final = {Kind.FILE: "file", Kind.DIR: "directory"}
_LOCAL: Final = ("file", "local")
_COPY_BYTES: Final = 1024 * 1024


class Moments(Protocol):
    """The moments that the first components of a path name."""

    depth: int
    """The number of components that name a moment."""

    @property
    def reader(self) -> BlobReader:
        """The reader of file contents."""

    def resolve(self, name: str) -> TreeRef | None:
        """Return the tree of a moment; ``None`` for a moment before the first content.

        Raises:
            NotFound: the name is unknown.
        """

    def names(self, prefix: str) -> list[str]:
        """Return the possible next components; moments are not listed, as there may be many."""

    def is_fixed(self, name: str) -> bool:
        """Whether the name always denotes the same tree."""


class StoreMoments:
    """The moments of a store's workspaces: ``WORKSPACE@NUMBER``, ``WORKSPACE``, and ``@NUMBER`` of ``main``.

    Args:
        store: a directory or a URL.
    """

    depth = 1

    def __init__(self, store: str) -> None:
        self._repository = Repository.at(store)
        self._repository.reach()
        self._blobs = PackBlobStore(self._repository.blobs_url, cache="node")

    @property
    def reader(self) -> BlobReader:
        """The store's blobs."""
        return self._blobs

    def resolve(self, name: str) -> TreeRef | None:
        """Return the tree of a workspace at a moment."""
        workspace, at, moment = name.rpartition("@")
        if not at:
            workspace, moment = name, ""
        return self._repository.commit_of(workspace or "main", moment or "last")

    def names(self, prefix: str) -> list[str]:
        """Return the workspaces."""
        return self._repository.workspaces() if not prefix else []

    def is_fixed(self, name: str) -> bool:
        """Whether the name has a commit's number."""
        return name.rpartition("@")[2].isdecimal() and "@" in name


class ChronicleFileSystem(AbstractFileSystem):  # type: ignore[misc] # fsspec has no types
    """See the module. Safe to share between threads.

    Args:
        workspace: an open workspace; the paths are paths in it.
        store: a directory or URL; the paths begin with a moment of it.
        fo, target_protocol: the store, as a chained URL gives it.
        moments: another set of moments with which the paths begin.
        auto_mkdir: create missing parent directories of a new file.

    Raises:
        InvalidInput: not exactly one of these was given.
        NotFound: there is no such store.
    """

    protocol = "chronicle"
    root_marker = ""
    cachable = False  # the last commit changes, and an open workspace belongs to its opener

    def __init__(
        self,
        workspace: ApiWorkspace | None = None,
        store: str | os.PathLike[str] | None = None,
        fo: str | None = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        moments: Moments | None = None,
        *,
        auto_mkdir: bool = False,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        if fo is not None:
            if target_options:
                raise InvalidInput("a store takes no options in a chained URL; give it as store=, with its own URL")
            store = fo if target_protocol in _LOCAL else f"{target_protocol}://{fo}"
        given = [one for one in (workspace, store, moments) if one is not None]
        if len(given) != 1:
            raise InvalidInput("give one of workspace= (an open one) and store= (a directory or URL)")
        self._workspace = workspace
        self._moments = StoreMoments(os.fspath(store)) if store is not None else moments
        self._auto_mkdir = auto_mkdir
        self._views: dict[str, CommittedFiles] = {}
        self._lock = threading.Lock()

    # -- reading --------------------------------------------------------------------------------------------------

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return a path's entry: ``name, size, type, mode, mtime, ino, nlink, uid, gid, islink, destination``."""
        path = self._strip_protocol(path)
        if self._is_above(path):
            return _folder(path)
        view, rest = self._at(path)
        status = view.status(rest, follow_links=False)
        return _info(path, view.status(rest) if status.kind is Kind.SYMLINK else status, status.target)

    def lexists(self, path: str, **_: Any) -> bool:
        """Return whether the path exists; true also for a dangling symlink."""
        path = self._strip_protocol(path)
        try:
            return self._is_above(path) or self._kind(path) is not None
        except OSError:
            return False

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List a directory, or return the entry of a file.

        Symlinks are listed as such, with type ``other`` and the size of their target, so that a walk does not follow
        cycles.
        """
        path = self._strip_protocol(path)
        if self._is_above(path):
            assert self._moments is not None
            found = [_folder(f"{path}/{name}" if path else name) for name in self._moments.names(path)]
        else:
            view, rest = self._at(path)
            if view.status(rest).kind is Kind.DIR:
                found = []
                for name, status in view.list(rest):
                    found.append(_info(f"{path}/{name}" if path else name, status, status.target))
                    if status.kind is Kind.SYMLINK:
                        found[-1]["size"] = _size_behind(view, f"{rest}/{name}" if rest else name)
            else:
                found = [self.info(path)]
        return found if detail else [item["name"] for item in found]

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        cache_type: str = "readahead",
        **_: Any,
    ) -> IO[bytes]:
        """Open a file; see ``fsspec.AbstractFileSystem.open``, which adds text."""
        if self._workspace is None:
            if mode != "rb":
                self._refuse(path)
            view, rest = self._at(path)
            assert isinstance(view, CommittedFiles)
            view.open(rest).close()  # says what is no file
            options = {"cache_type": cache_type, "cache_options": cache_options}
            return cast("IO[bytes]", _MomentFile(self, path, view, rest, block_size or "default", **options))
        if not autocommit:
            raise NotImplementedError("a workspace has turns, and no transactions of fsspec")
        if self._auto_mkdir and mode[0] in "wax":
            self._make_parent(path)
        return self._workspace.open(path, mode if "b" in mode else mode + "b")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return a file's bytes, or a range of them; negative numbers count from the end."""
        path = self._strip_protocol(path)
        view, rest = self._at(path)
        if isinstance(view, CommittedFiles):
            size = view.status(rest).size
            first, last = (_from_end(value, size, default) for value, default in ((start, 0), (end, size)))
            return view.read(rest, first, max(first, last))
        data: bytes = super().cat_file(path, start, end)
        return data

    def modified(self, path: str) -> datetime:
        """Return when a file was modified last."""
        view, rest = self._at(self._strip_protocol(path))
        return datetime.fromtimestamp(view.status(rest).mtime_ns / 1e9, UTC)

    def created(self, path: str) -> datetime:
        """Return when a path was created; after a removal, when it was last recreated."""
        view, rest = self._at(self._strip_protocol(path))
        view.status(rest, follow_links=False)
        first = None
        for version in self._versions(view, rest):
            if version.op == "delete":
                first = None
            elif first is None:
                first = version.timestamp
        return datetime.fromtimestamp(first / 1000, UTC) if first is not None else self.modified(path)

    def checksum(self, path: str) -> str:
        """Return the content's id: equal content has equal ids, also across workspaces."""
        view, rest = self._at(self._strip_protocol(path))
        found = view.content_id(rest)
        if found is None:
            raise IsADirectoryError(errno.EISDIR, "an open workspace knows no id of a directory", path)
        return found

    def ukey(self, path: str) -> str:
        """Return the content's id, as the key for caches."""
        return self.checksum(path)

    # -- writing --------------------------------------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a directory."""
        path = self._strip_protocol(path)
        self._writable(path).make_directory(path, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory and its missing parents."""
        path = self._strip_protocol(path)
        if path or not exist_ok:
            self._writable(path).make_directory(path, parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        path = self._strip_protocol(path)
        self._writable(path).remove_directory(path)

    def rm_file(self, path: str) -> None:
        """Remove a file or symlink."""
        path = self._strip_protocol(path)
        self._writable(path).remove(path)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files, and with ``recursive`` directories and their contents."""
        if isinstance(path, str) and self.lexists(path) and self._kind(self._strip_protocol(path)) is not Kind.DIR:
            self.rm_file(path)  # not what it leads to
            return
        for name in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if self._kind(name) is Kind.DIR:
                self.rmdir(name)
            else:
                self.rm_file(name)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file's bytes; a directory is created without its contents."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        workspace = self._writable(path2)
        if self._auto_mkdir:
            self._make_parent(path2)
        if self.isdir(path1):
            workspace.make_directory(path2, exist_ok=True)
            return
        with workspace.open(path1) as source, workspace.open(path2, "wb") as target:
            while part := source.read(_COPY_BYTES):
                target.write(part)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Move paths: a single one is renamed atomically; several are copied and removed."""
        source, target = (self._strip_protocol(path) for path in (path1, path2))
        if isinstance(source, str) and isinstance(target, str) and not any(letter in source for letter in "*?["):
            workspace = self._writable(target)
            if not path1.endswith("/") and (path2.endswith("/") or (self.isdir(target) and target != source)):
                target = f"{target}/{source.rpartition('/')[2]}"
            if self._auto_mkdir:
                self._make_parent(target)
            workspace.rename(source, target)
            return
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        """Create an empty file, truncate one, or set its time to now."""
        path = self._strip_protocol(path)
        workspace = self._writable(path)
        if truncate or not workspace.exists(path):
            with self.open(path, "wb"):
                pass
        else:
            workspace.set_mtime(path, int(datetime.now(UTC).timestamp() * 1e9))

    # -- behind it ------------------------------------------------------------------------------------------------

    def _is_above(self, path: str) -> bool:
        """Whether a path is a proper prefix of a moment's name; raises if no moment begins with it."""
        moments = self._moments
        if moments is None:
            return False
        parts = path.split("/") if path else []
        if len(parts) >= moments.depth:
            return False
        if parts and parts[-1] not in moments.names("/".join(parts[:-1])):
            raise _absent(path, "nothing is called so")
        return True

    def _at(self, path: str) -> tuple[ApiWorkspace | CommittedFiles, str]:
        """Return the workspace or moment of a path, and the path in it."""
        if self._workspace is not None:
            return self._workspace, path
        moments = self._moments
        assert moments is not None
        parts = path.split("/")
        name, rest = "/".join(parts[: moments.depth]), "/".join(parts[moments.depth :])
        if len(parts) < moments.depth or not name:
            raise IsADirectoryError(errno.EISDIR, "names no moment yet", path)
        with self._lock:
            view = self._views.get(name)
        if view is None:
            try:
                view = CommittedFiles(moments.reader, moments.resolve(name))
            except NotFound as error:
                raise _absent(path, str(error)) from error
            if moments.is_fixed(name):
                with self._lock:
                    self._views[name] = view
        return view, rest

    def _kind(self, path: str) -> Kind:
        """Return the kind of a path, without following a symlink."""
        view, rest = self._at(path)
        return view.status(rest, follow_links=False).kind

    def _versions(self, view: ApiWorkspace | CommittedFiles, path: str) -> Sequence[Iteration]:
        try:
            return view.history(path)
        except NotFound:  # the root, and what came with a directory that was renamed
            return ()

    def _writable(self, path: str) -> ApiWorkspace:
        if self._workspace is None:
            self._refuse(path)
        return self._workspace

    def _refuse(self, path: str) -> NoReturn:
        raise OSError(errno.EROFS, "this is a moment in the past, and read-only; to write, open the workspace", path)

    def _make_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent:
            self.makedirs(parent, exist_ok=True)


class _MomentFile(AbstractBufferedFile):  # type: ignore[misc]
    """An open committed file, in the form that fsspec's caches and block readers use, and pickle."""

    def __init__(
        self, fs: ChronicleFileSystem, path: str, view: CommittedFiles, rest: str, block_size: int | str, **options: Any
    ) -> None:
        self._view = view
        self._rest = rest
        super().__init__(fs, path, "rb", block_size, size=view.status(rest).size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._view.read(self._rest, start, end)


def _folder(path: str) -> dict[str, Any]:
    """Return the metadata of a path above the moments."""
    return {"name": path, "size": 0, "type": "directory", "islink": False}


def _size_behind(view: ApiWorkspace | CommittedFiles, path: str) -> int:
    """Return the size of a symlink's target; 0 if it dangles."""
    try:
        return view.status(path).size
    except OSError:
        return 0


def _info(path: str, status: Status, target: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": path,
        "size": status.size,
        "type": _TYPES.get(status.kind, "other"),
        "mode": status.mode,
        "mtime": status.mtime_ns / 1e9,
        "ino": status.ino,
        "nlink": status.links,
        "uid": status.uid,
        "gid": status.gid,
        "islink": target is not None,
    }
    if target is not None:
        found["destination"] = target
    return found


def _from_end(value: int | None, size: int, default: int) -> int:
    if value is None:
        return default
    return min(size, value if value >= 0 else max(0, size + value))


def _absent(path: str, reason: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, reason, path)
