"""The api presentation passes the suite of all presentations: its calls in the place of system calls."""

from __future__ import annotations

import itertools
import os
import stat
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, cast

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.testing.workspace_contract import (
    VersionPerCloseContract,
    closes,
    files,
    history,
    moves,
    opening,
    trees,
    turns,
)
from chronicle.workspace.api.workspace import ApiWorkspace
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import Opened
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.workspace.port import LayerSpec, Workspace

KINDS = {
    Kind.FILE: stat.S_IFREG,
    Kind.DIR: stat.S_IFDIR,
    Kind.SYMLINK: stat.S_IFLNK,
    Kind.FIFO: stat.S_IFIFO,
    Kind.SOCKET: stat.S_IFSOCK,
    Kind.CHAR: stat.S_IFCHR,
    Kind.BLOCK: stat.S_IFBLK,
}
OPEN: dict[str, Rooted] = {}
"""Workspaces by the first component of the paths in them: ``/api-1/dir/file``."""
NUMBERS = itertools.count(1)


class Rooted(ApiWorkspace):
    """An open workspace with a root that paths can be made from."""

    name = ""

    @property
    def root(self) -> ApiPath:
        return ApiPath(f"/{self.name}")


def located(path: Any) -> tuple[Rooted, str]:
    _, name, *rest = os.fsdecode(path).split("/")
    return OPEN[name], "/".join(rest)


def open_file(path: Any, mode: str = "r", buffering: int = -1) -> IO[Any]:
    workspace, below = located(path)
    opened = workspace.open(below, mode)
    return cast("IO[Any]", opened.detach()) if buffering == 0 else opened  # type: ignore[attr-defined]


class ApiPath(PurePosixPath):
    """What the suite does with paths, done by calls."""

    def write_bytes(self, data: bytes) -> None:
        workspace, path = located(self)
        workspace.write(path, data)

    def read_bytes(self) -> bytes:
        workspace, path = located(self)
        return workspace.read(path)

    def open(self, mode: str = "r", buffering: int = -1) -> IO[Any]:
        return open_file(self, mode, buffering)

    def mkdir(self, mode: int = 0o755, *, parents: bool = False) -> None:
        workspace, path = located(self)
        workspace.make_directory(path, parents=parents)
        workspace.set_mode(path, mode)

    def chmod(self, mode: int) -> None:
        workspace, path = located(self)
        workspace.set_mode(path, mode)

    def symlink_to(self, target: str) -> None:
        workspace, path = located(self)
        workspace.symlink(target, path)

    def rename(self, target: ApiPath) -> None:
        workspace, path = located(self)
        workspace.rename(path, located(target)[1])

    def unlink(self) -> None:
        workspace, path = located(self)
        workspace.remove(path)

    def rmdir(self) -> None:
        workspace, path = located(self)
        workspace.remove_directory(path)


def status(path: Any, *, follow: bool) -> SimpleNamespace:
    workspace, below = located(path)
    found = workspace.status(below, follow_links=follow)
    return SimpleNamespace(
        st_mode=KINDS[found.kind] | found.mode,
        st_size=found.size,
        st_nlink=found.links,
        st_ino=found.ino,
        st_mtime_ns=found.mtime_ns,
        st_rdev=found.device,
        st_uid=found.uid,
        st_gid=found.gid,
    )


class ApiOs:
    """``os``, whose calls go to workspaces."""

    class path:  # noqa: N801 - as it is called
        join, relpath = os.path.join, os.path.relpath

        @staticmethod
        def islink(path: Any) -> bool:
            return stat.S_ISLNK(status(path, follow=False).st_mode)

        @staticmethod
        def isdir(path: Any) -> bool:
            return stat.S_ISDIR(status(path, follow=True).st_mode)

        @staticmethod
        def samefile(one: Any, other: Any) -> bool:
            return bool(status(one, follow=True).st_ino == status(other, follow=True).st_ino)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def listdir(self, path: Any) -> list[str]:
        workspace, below = located(path)
        return [name for name, _ in workspace.list(below)]

    def walk(self, top: Any) -> Iterator[tuple[str, list[str], list[str]]]:
        workspace, below = located(top)
        found = workspace.list(below)
        directories = [name for name, item in found if item.kind is Kind.DIR]
        yield os.fspath(top), directories, [name for name, item in found if item.kind is not Kind.DIR]
        for name in directories:
            yield from self.walk(f"{os.fspath(top)}/{name}")

    def readlink(self, path: Any) -> str:
        workspace, below = located(path)
        return workspace.status(below, follow_links=False).target or ""

    def stat(self, path: Any) -> SimpleNamespace:
        return status(path, follow=True)

    def lstat(self, path: Any) -> SimpleNamespace:
        return status(path, follow=False)

    def chmod(self, path: Any, mode: int) -> None:
        ApiPath(path).chmod(mode)

    def rename(self, old: Any, new: Any) -> None:
        ApiPath(old).rename(new)

    def unlink(self, path: Any) -> None:
        ApiPath(path).unlink()

    def link(self, old: Any, new: Any) -> None:
        workspace, below = located(old)
        workspace.link(below, located(new)[1])

    def utime(self, path: Any, ns: tuple[int, int]) -> None:
        workspace, below = located(path)
        workspace.set_mtime(below, ns[1])

    def setxattr(self, path: Any, name: str, value: bytes) -> None:
        workspace, below = located(path)
        workspace.set_xattr(below, name, value)

    def removexattr(self, path: Any, name: str) -> None:
        workspace, below = located(path)
        workspace.set_xattr(below, name, None)

    def mknod(self, path: Any, mode: int, device: int) -> None:
        workspace, below = located(path)
        workspace.make_node(below, mode, device)

    def mkfifo(self, path: Any, mode: int) -> None:
        workspace, below = located(path)
        workspace.make_node(below, stat.S_IFIFO | mode)


@dataclass
class ApiNode:
    directory: Path
    blobs: MemoryBlobStore
    opened: list[Rooted] = field(default_factory=list)
    others: list[ApiNode] = field(default_factory=list)

    @property
    def layers(self) -> Path:
        return self.directory / "layers"

    def open(self, spec: LayerSpec) -> Opened:
        for before in self.opened:
            before.close()  # a newer epoch's host cuts the older one's off: here it is this process
        workspace = Rooted(*open_layer(spec, self.blobs, SystemClock()))
        workspace.name = f"api-{next(NUMBERS)}"
        OPEN[workspace.name] = workspace
        self.opened.append(workspace)
        return Opened(cast("Workspace", workspace), workspace.recovered)

    def elsewhere(self) -> ApiNode:
        other = ApiNode(self.directory / f"node{len(self.others)}", self.blobs)
        self.others.append(other)
        return other

    def close(self) -> None:
        for other in self.others:
            other.close()
        for workspace in self.opened:
            workspace.close()
            OPEN.pop(workspace.name)


class TestApiWorkspace(VersionPerCloseContract):
    @pytest.fixture
    def node(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiNode]:
        for part in (closes, files, history, moves, opening, trees, turns):
            monkeypatch.setattr(part, "os", ApiOs(), raising=False)
            monkeypatch.setattr(part, "open", open_file, raising=False)
        made = ApiNode(tmp_path, MemoryBlobStore())
        yield made
        made.close()
