"""What a program did to a workspace, and when: the model that histories are compared with.

A `Diary` is kept by the one who makes the system calls. It knows nothing of how the workspace stores or derives
anything: a rename of a directory is written down for every single path that moves. `tests/stateful/story.py` does
random things to a workspace and to a diary, and compares.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import NamedTuple

FILE, DIRECTORY, LINK = "file", "directory", "link"


@dataclass(eq=False)
class Thing:
    """A file, directory or symlink. A file with several names is one thing."""

    kind: str
    content: bytes = b""
    """Of a symlink, its target."""
    mode: int = 0o644


class Version(NamedTuple):
    """What a path was from an operation on."""

    op: str
    kind: str
    """For a deletion, what was deleted."""
    content: bytes
    mode: int
    sources: tuple[str, ...]
    """Where a rename came from; of a link, all names that the file had."""
    turn: int
    since_ms: int
    """The operation began not before this, in epoch milliseconds."""
    until_ms: int
    """It was over by this."""

    @property
    def gone(self) -> bool:
        return self.op == "delete"


class Line(NamedTuple):
    """What a program asked for, at one path."""

    op: str
    path: str
    sources: tuple[str, ...]
    turn: int
    at: int
    """Which version of the path it made, from 0."""
    operation: int
    """Counts what was asked for."""


@dataclass
class Kept:
    """What a commit keeps, and a rollback brings back."""

    things: dict[str, Thing] = field(default_factory=dict)
    versions: dict[str, list[Version]] = field(default_factory=dict)
    log: list[Line] = field(default_factory=list)


class Diary:
    """What was done, and what is there because of it."""

    def __init__(self) -> None:
        self.now = Kept()
        self.committed = Kept()
        self.turns: dict[int, dict[str, tuple[str, bytes, int]]] = {0: {}}
        """Turn → path → kind, content and mode."""
        self.turn = 1
        self.since_ms = self.until_ms = 0
        """When the operation that is written down began, and was over."""
        self.operation = 0

    # -- what there is --------------------------------------------------------------------------------------------

    def kind(self, path: str) -> str | None:
        thing = self.now.things.get(path)
        return DIRECTORY if not path else thing.kind if thing is not None else None

    def is_free(self, path: str) -> bool:
        return self.kind(path) is None and self.kind(path.rpartition("/")[0]) == DIRECTORY

    def below(self, path: str) -> list[str]:
        return [other for other in self.now.things if other.startswith(path + "/")]

    def names(self, thing: Thing) -> list[str]:
        return [path for path, other in self.now.things.items() if other is thing]

    def ever_below(self, path: str) -> bool:
        """Whether anything ever was below a path."""
        return any(other.startswith(path + "/") for other in self.now.versions)

    # -- what may be done -----------------------------------------------------------------------------------------

    def may_rename(self, old: str, new: str) -> bool:
        """Whether rename(2) of two names moves something."""
        was, there = self.kind(old), self.kind(new)
        if was is None or old == new or new.startswith(old + "/"):
            return False
        if self.kind(new.rpartition("/")[0]) != DIRECTORY:
            return False
        if there is None:
            return True
        if (was == DIRECTORY) != (there == DIRECTORY) or self.below(new):
            return False
        return self.now.things[old] is not self.now.things[new]

    def may_exchange(self, old: str, new: str) -> bool:
        if self.kind(old) is None or self.kind(new) is None or old == new:
            return False
        nested = new.startswith(old + "/") or old.startswith(new + "/")
        return not nested and self.now.things[old] is not self.now.things[new]

    # -- what was done --------------------------------------------------------------------------------------------

    def wrote(self, path: str, content: bytes) -> None:
        """A program opened, emptied, wrote and closed a file, which it may have made."""
        made = path not in self.now.things
        thing = self.now.things.setdefault(path, Thing(FILE))
        before, thing.content = thing.content, content
        if content or before or made:
            for name in sorted(self.names(thing)):
                self._note(name, "write" if content or not made else "create", logged=True)

    def made_directory(self, path: str) -> None:
        self.now.things[path] = Thing(DIRECTORY, mode=0o755)
        self._note(path, "mkdir", logged=True)

    def made_symlink(self, path: str, target: bytes) -> None:
        self.now.things[path] = Thing(LINK, target, 0o777)
        self._note(path, "symlink", logged=True)

    def linked(self, old: str, new: str) -> None:
        sources = self.names(self.now.things[old])
        self.now.things[new] = self.now.things[old]
        self._note(new, "link", *sources, logged=True)

    def changed_mode(self, path: str, mode: int) -> None:
        thing = self.now.things[path]
        if thing.mode != mode:
            thing.mode = mode
            for name in sorted(self.names(thing)):
                self._note(name, "mode", logged=True)

    def set_attribute(self, path: str) -> None:
        for name in sorted(self.names(self.now.things[path])):
            self._note(name, "xattr", logged=True)

    def removed(self, path: str) -> None:
        self._note(path, "delete", logged=True)
        del self.now.things[path]

    def renamed(self, old: str, new: str) -> None:
        moved = [old, *self.below(old)]
        for path in moved:
            self._note(path, "delete", logged=path == old)
        carried = {new + path[len(old) :]: self.now.things.pop(path) for path in moved}
        self.now.things.update(carried)
        for path in moved:
            self._note(new + path[len(old) :], "rename", path, logged=path == old)

    def exchanged(self, one: str, other: str) -> None:
        sides = {one: other, other: one}
        trees = {side: {path: self.now.things[path] for path in [side, *self.below(side)]} for side in sides}
        come = {sides[side] + path[len(side) :]: path for side, tree in trees.items() for path in tree}
        left = [path for tree in trees.values() for path in tree if path not in come]
        for path in left:
            self._note(path, "delete", logged=False)
        for tree in trees.values():
            for path in tree:
                del self.now.things[path]
        for path, source in come.items():
            self.now.things[path] = trees[one if source in trees[one] else other][source]
        for path, source in come.items():
            self._note(path, "rename", source, logged=path in sides)

    def committed_turn(self) -> None:
        self.turns[self.turn] = {
            path: (thing.kind, thing.content, thing.mode) for path, thing in self.now.things.items()
        }
        self.committed = copy.deepcopy(self.now)
        self.turn += 1

    def rolled_back(self) -> None:
        self.now = copy.deepcopy(self.committed)

    def _note(self, path: str, op: str, *sources: str, logged: bool) -> None:
        thing = self.now.things[path]
        content, mode = (b"", 0) if op == "delete" else (thing.content, thing.mode)
        versions = self.now.versions.setdefault(path, [])
        versions.append(Version(op, thing.kind, content, mode, sources, self.turn, self.since_ms, self.until_ms))
        if logged:
            self.now.log.append(Line(op, path, sources, self.turn, len(versions) - 1, self.operation))
