"""A model of a workspace: its files, every version of every path, and what a commit keeps of them.

State machines do the same to a workspace and to a `World`, and compare. `tests/stateful/test_layer_model.py` does so in
process, `tests/fuse/workspace/test_mount_model.py` on real mounts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

H = TypeVar("H")

Version = bytes | str | None
"""Content, or a symlink's target; ``"dir"`` for a directory, None for a deletion."""


@dataclass(eq=False)
class File:
    """A file or symlink: several paths may share one."""

    content: bytes = b""
    target: str | None = None
    mode: int = 0o644
    xattrs: dict[str, bytes] = field(default_factory=dict)
    unversioned: bool = False
    """Whether it was written since its last version."""
    versioned: bool = False
    """Whether it ever had one."""

    @property
    def seen(self) -> bytes:
        """What a version of it holds."""
        return self.content if self.target is None else self.target.encode()


@dataclass
class Open(Generic[H]):
    """A file that is open, by whatever handle."""

    file: File
    handle: H
    fresh: bool
    """Whether it was made or emptied when it was opened."""
    wrote: bool = False

    @property
    def makes_version(self) -> bool:
        """Whether closing it may make a version."""
        return self.wrote or self.fresh


@dataclass
class World:
    """Everything that a commit keeps."""

    files: dict[str, File | None] = field(default_factory=dict)
    """Path → file, or None for a directory."""
    history: dict[str, list[Version]] = field(default_factory=dict)
    """Path → its versions, oldest first."""

    def copy(self) -> World:
        return copy.deepcopy(self)

    # -- what there is --------------------------------------------------------------------------------------------

    def kind(self, path: str) -> str | None:
        """``"dir"``, ``"link"``, ``"file"``, or None if nothing is there."""
        if path == "":
            return "dir"
        if path not in self.files:
            return None
        file = self.files[path]
        return "dir" if file is None else "link" if file.target is not None else "file"

    def is_free(self, path: str) -> bool:
        """Whether something can be made there."""
        return self.kind(path.rpartition("/")[0]) == "dir" and self.kind(path) is None

    def regular(self, path: str) -> File | None:
        return self.files[path] if self.kind(path) == "file" else None

    def below(self, path: str) -> list[str]:
        return [other for other in self.files if other.startswith(path + "/")]

    def paths_of(self, file: File) -> list[str]:
        return [path for path, other in self.files.items() if other is file]

    def all_files(self) -> list[File]:
        """Each file once, however many names it has."""
        return list(dict.fromkeys(file for file in self.files.values() if file is not None))

    def contents(self) -> dict[str, bytes | str | None]:
        """What `chronicle.testing.workspace_contract.files_in` says of a tree that is like this."""
        return {path: _shown(file) for path, file in self.files.items()}

    # -- versions -------------------------------------------------------------------------------------------------

    def note(self, path: str, what: Version) -> None:
        self.history.setdefault(path, []).append(what)

    def alive(self, path: str) -> bool:
        return self.history.get(path, [None])[-1] is not None

    def settle(self, file: File) -> None:
        """Make a version of what was written to a file."""
        paths = self.paths_of(file)
        if file.target is None and paths and (file.unversioned or not file.versioned):
            for path in paths:
                self.note(path, file.content)
            file.unversioned, file.versioned = False, True

    def settle_all(self) -> None:
        """What a seal does, files that are open included."""
        for file in self.all_files():
            self.settle(file)

    def closed(self, opened: Open[H]) -> None:
        if opened.makes_version:
            self.settle(opened.file)

    def died(self) -> None:
        """The process that served it is gone: what was written to a new file is a version from then on."""
        for file in self.all_files():
            if not file.versioned and file.content:
                file.unversioned = True

    # -- operations, when the same was done to the workspace -----------------------------------------------------------

    def create(self, path: str) -> File:
        file = self.files[path] = File()
        return file

    @staticmethod
    def write(opened: Open[H], offset: int, content: bytes) -> None:
        _put(opened.file, offset, content)
        opened.wrote = True

    def write_at_once(self, file: File, offset: int, content: bytes) -> None:
        """By a handle that is opened and closed for it."""
        _put(file, offset, content)
        self.settle(file)

    @staticmethod
    def empty(file: File) -> None:
        """Open it with O_TRUNC."""
        if file.content:
            file.content, file.unversioned = b"", True

    @staticmethod
    def resize(file: File, size: int) -> bool:
        """Cut it off or fill it up; return whether that changed anything."""
        if size == len(file.content):
            return False
        file.content = file.content[:size].ljust(size, b"\0")
        file.unversioned = True
        return True

    def mkdir(self, path: str) -> None:
        self.files[path] = None
        self.note(path, "dir")

    def symlink(self, path: str, to: str) -> None:
        self.files[path] = File(target=to, versioned=True)
        self.note(path, to.encode())

    def can_remove(self, path: str) -> bool:
        return self.kind(path) is not None and not self.below(path)

    def remove(self, path: str) -> None:
        file = self.files.pop(path)
        if file is None or file.versioned:
            self.note(path, None)

    def can_rename(self, old: str, new: str) -> bool:
        """Whether rename(2) does it, or finds that both are one file."""
        if self.kind(old) is None or self.kind(new.rpartition("/")[0]) != "dir" or new == old:
            return False
        if new.startswith(old + "/"):
            return False
        target = self.kind(new)
        return target is None or ((self.files[old] is None) == (target == "dir") and not self.below(new))

    def rename(self, old: str, new: str) -> None:
        moving = self.files[old]
        if moving is not None:
            if self.files.get(new) is moving:
                return
            self.settle(moving)
        tree = [old, *self.below(old)]
        carried = {path: self.files.pop(path) for path in tree}
        self.files.update({new + path[len(old) :]: file for path, file in carried.items()})
        moved = [path for path in tree if path == old or self.alive(path)]
        for path in moved:
            self.note(new + path[len(old) :], self.history[path][-1])
        for path in moved:
            self.note(path, None)

    def can_exchange(self, old: str, new: str) -> bool:
        """Whether both are files or symlinks, and not one."""
        one, other = self.files.get(old), self.files.get(new)
        return one is not None and other is not None and one is not other

    def exchange(self, old: str, new: str) -> None:
        one, other = self.files[old], self.files[new]
        assert one is not None
        assert other is not None
        self.settle(one)
        self.settle(other)
        self.files[old], self.files[new] = other, one
        self.note(old, other.seen)
        self.note(new, one.seen)

    def link(self, old: str, new: str) -> None:
        file = self.files[old]
        assert file is not None
        self.settle(file)
        self.files[new] = file
        self.note(new, file.seen)

    def chmod(self, file: File, mode: int) -> None:
        if file.mode != mode:
            self._settle_before_attributes(file)
            file.mode = mode
            self._note_attributes(file)

    def setxattr(self, file: File, name: str, value: bytes) -> None:
        if file.xattrs.get(name) != value:
            self._settle_before_attributes(file)
            file.xattrs[name] = value
            self._note_attributes(file)

    def _settle_before_attributes(self, file: File) -> None:
        if file.versioned:
            self.settle(file)

    def _note_attributes(self, file: File) -> None:
        """Note a version of all of a file's paths, for a change of its attributes."""
        if file.versioned:
            for path in self.paths_of(file):
                self.note(path, file.seen)


class Numbers:
    """Every number of a version that was ever seen, by path: none may ever mean anything else."""

    def __init__(self) -> None:
        self._given: dict[str, dict[int, tuple[Version, int]]] = {}
        """Path → number → what it stood for, and since when."""

    def paths(self) -> Iterable[str]:
        return self._given

    def forget(self) -> None:
        self._given.clear()

    def see(self, path: str, rows: Sequence[tuple[int, int]], expected: Sequence[Version]) -> None:
        """See a path's history.

        Args:
            rows: number and timestamp of each version, oldest first.
            expected: what they should be.
        """
        assert len(rows) == len(expected), (path, rows, expected)
        given = self._given.setdefault(path, {})
        last = 0
        for (number, timestamp), what in zip(rows, expected, strict=True):
            assert number > last, (path, rows)
            last = number
            assert given.setdefault(number, (what, timestamp)) == (what, timestamp), (path, number)


def _shown(file: File | None) -> bytes | str | None:
    if file is None:
        return None
    return file.content if file.target is None else file.target


def _put(file: File, offset: int, content: bytes) -> None:
    before = file.content.ljust(offset, b"\0")
    file.content = before[:offset] + content + before[offset + len(content) :]
    file.unversioned = True
