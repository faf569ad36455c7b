"""Random things done to a workspace and written down in a diary, and the comparison of all that it says of its past.

A story is data: steps that are skipped where they cannot be taken, so that hypothesis can leave some out. `Stage` is
where it is played: `tests/stateful/test_history_model.py` has one in process,
`tests/fuse/workspace/test_history_model.py` a real mount.
"""

from __future__ import annotations

import json
import random
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from tests.stateful.diary import DIRECTORY, LINK, Diary, Version

NAMES = "abc"
STEPS = (
    *("write", "mkdir", "rename", "move", "remove") * 4,
    *("exchange", "link", "symlink", "chmod", "xattr", "empty") * 1,
    *("commit", "kill") * 1,
)
"""What a step may be, as often as it should come."""


class Step(NamedTuple):
    """One step. What its fields mean depends on what is there."""

    what: str
    path: str
    other: str
    number: int


class Seen(NamedTuple):
    """What lstat(2) says of a path."""

    kind: str
    mode: int
    size: int


class Stage(Protocol):
    """A workspace, and how to do things to it. Paths are relative to its root."""

    def now_ms(self) -> int:
        """The time that versions are dated by, in epoch milliseconds."""

    def write(self, path: str, content: bytes) -> None:
        """Let a file, new with mode 0644, hold this. Its version is there when this returns."""

    def mkdir(self, path: str) -> None:
        """With mode 0755."""

    def symlink(self, path: str, target: bytes) -> None: ...
    def remove(self, path: str, *, directory: bool) -> None: ...
    def rename(self, old: str, new: str, *, exchange: bool = False) -> None: ...
    def link(self, old: str, new: str) -> None: ...
    def chmod(self, path: str, mode: int) -> None: ...
    def set_attribute(self, path: str, value: bytes) -> None: ...

    def commit(self) -> bool:
        """Commit, and say whether there was anything to commit."""

    def rollback(self) -> None: ...

    def kill(self, how: int) -> None:
        """End what serves the workspace, one way or another, and go on with what is left."""

    def seen(self, path: str) -> Seen | None:
        """None if there is no such path, or something above it is no directory."""

    def read(self, path: str) -> bytes: ...
    def target(self, path: str) -> bytes: ...
    def names(self, path: str) -> set[str]: ...

    def history(self, path: str) -> list[dict[str, Any]]:
        """What ``history`` says of it by another way than a file, as JSON has it; empty for what never was."""

    def at(self, path: str, number: int) -> bytes:
        """A version by another way than a file."""


def random_story(seed: int, length: int) -> list[Step]:
    """Steps for a stage where hypothesis would be too slow. In every third story something is rolled back."""
    rng = random.Random(seed)
    steps = (*STEPS, "rollback") if seed % 3 == 2 else STEPS
    return [Step(rng.choice(steps), _random_path(rng), _random_path(rng), rng.randrange(100)) for _ in range(length)]


def _random_path(rng: random.Random) -> str:
    return "/".join(rng.choice(NAMES) for _ in range(rng.randint(1, 3)))


class Story:
    """A story that is being played."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.diary = Diary()
        self.written = 0
        self.shown: dict[tuple[str, int], Version] = {}
        """What each number of a path ever stood for."""
        self.rolled_back = False

    def play(self, steps: list[Step], *, checks: bool = True) -> None:
        """Take steps, and compare whenever something may have renumbered or moved what was."""
        for step in steps:
            self.take(step)
            if checks and step.what in {"commit", "kill", "rollback"}:
                self.check()
        self.check()

    # -- steps ----------------------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        what, path, other, number = step
        diary, stage = self.diary, self.stage
        path = self._existing(path, number) if what not in {"write", "mkdir", "symlink"} else path
        diary.since_ms = stage.now_ms()
        done = getattr(self, f"_{what}")(path, other, number)
        if done is not None:
            diary.until_ms = stage.now_ms()
            diary.operation += 1
            done()

    def _existing(self, path: str, number: int) -> str:
        """Choose something that is there, so that most steps can be taken."""
        there = list(self.diary.now.things)
        return path if path in there or not there else there[number % len(there)]

    def _write(self, path: str, other: str, number: int) -> Any:
        if self.diary.kind(path) == "file" or self.diary.is_free(path):
            self.written += 1
            content = b"written %d\n" % self.written
            self.stage.write(path, content)
            return lambda: self.diary.wrote(path, content)
        return None

    def _empty(self, path: str, other: str, number: int) -> Any:
        for one in (path, other):
            if self.diary.kind(one) == "file" or self.diary.is_free(one):
                self.stage.write(one, b"")
                return lambda one=one: self.diary.wrote(one, b"")
        return self._write(path, other, number)

    def _mkdir(self, path: str, other: str, number: int) -> Any:
        if self.diary.is_free(path):
            self.stage.mkdir(path)
            return lambda: self.diary.made_directory(path)
        return None

    def _symlink(self, path: str, other: str, number: int) -> Any:
        if self.diary.is_free(path):
            target = f"{other}-{number}".encode()
            self.stage.symlink(path, target)
            return lambda: self.diary.made_symlink(path, target)
        return None

    def _remove(self, path: str, other: str, number: int) -> Any:
        kind = self.diary.kind(path)
        if kind is not None and not self.diary.below(path):
            self.stage.remove(path, directory=kind == DIRECTORY)
            return lambda: self.diary.removed(path)
        return None

    def _rename(self, path: str, other: str, number: int) -> Any:
        if self.diary.may_rename(path, other):
            self.stage.rename(path, other)
            return lambda: self.diary.renamed(path, other)
        return None

    def _move(self, path: str, other: str, number: int) -> Any:
        """Rename a directory that has something in it, if there is one."""
        full = [one for one in self.diary.now.things if self.diary.below(one)]
        return self._rename(full[number % len(full)] if full else path, other, number)

    def _exchange(self, path: str, other: str, number: int) -> Any:
        other = self._existing(other, number + 1)
        if self.diary.may_exchange(path, other):
            self.stage.rename(path, other, exchange=True)
            return lambda: self.diary.exchanged(path, other)
        return None

    def _link(self, path: str, other: str, number: int) -> Any:
        if self.diary.kind(path) == "file" and self.diary.is_free(other):
            self.stage.link(path, other)
            return lambda: self.diary.linked(path, other)
        return None

    def _chmod(self, path: str, other: str, number: int) -> Any:
        if self.diary.kind(path) in {"file", DIRECTORY}:
            mode = (0o600, 0o755, 0o750, 0o440)[number % 4] | (0o700 if self.diary.kind(path) == DIRECTORY else 0)
            self.stage.chmod(path, mode)
            return lambda: self.diary.changed_mode(path, mode)
        return None

    def _xattr(self, path: str, other: str, number: int) -> Any:
        if self.diary.kind(path) == "file":
            self.written += 1
            self.stage.set_attribute(path, b"%d" % self.written)
            return lambda: self.diary.set_attribute(path)
        return None

    def _commit(self, path: str, other: str, number: int) -> Any:
        return self.diary.committed_turn if self.stage.commit() else None

    def _kill(self, path: str, other: str, number: int) -> Any:
        self.stage.kill(number)

    def _rollback(self, path: str, other: str, number: int) -> Any:
        self.check()  # the numbers of what is given up are known from here on
        self.stage.rollback()
        self.rolled_back = True
        return self.diary.rolled_back

    # -- what must be ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare all that the workspace says of its past with the diary."""
        versions = self.diary.now.versions
        numbers = {path: self._check_history(path, versions[path]) for path in sorted(versions)}
        for path, wanted in versions.items():
            self._check_query(path, wanted)
            self._check_at(path, wanted, numbers[path])
        for path in ("a/a/a/a", "c/d", "d"):
            if path not in versions and not self.diary.ever_below(path):
                assert self.stage.seen(f".chronicle/query/{path}") is None
                assert self.stage.seen(f".chronicle/at/1/{path}") is None
                assert self.stage.history(path) == []
        self._check_lists()
        self._check_turns()
        self._check_log(numbers)

    def _check_history(self, path: str, wanted: list[Version]) -> list[int]:
        """See what a path was; return the numbers of its versions."""
        rows = self.stage.history(path)
        assert [row["op"] for row in rows] == [version.op for version in wanted], (path, rows, wanted)
        numbers = [row["iteration"] for row in rows]
        if not self.rolled_back:
            assert numbers == list(range(1, len(rows) + 1)), path
        assert numbers == sorted(set(numbers)), path
        for row, version in zip(rows, wanted, strict=True):
            number = row["iteration"]
            assert self.shown.setdefault((path, number), version) == version, (path, number)
            assert (row["size"], row["turn"]) == (len(version.content), version.turn), (path, row, version)
            assert row.get("source") in (version.sources or (None,)), (path, row, version)
            assert row.get("mode") == (None if version.gone else f"{version.mode:04o}"), (path, row, version)
            assert version.since_ms <= row["timestamp"] <= version.until_ms, (path, row, version)
            if version.gone or version.kind == DIRECTORY:
                assert row["hash"] == ""
            else:
                assert self.stage.at(path, number) == version.content, (path, number)
        return numbers

    def _check_query(self, path: str, wanted: list[Version]) -> None:
        place = f".chronicle/query/{path}"
        seen = self.stage.seen(place)
        assert seen is not None, path
        if self.diary.ever_below(path) or self.diary.kind(path) == DIRECTORY:
            assert seen.kind == DIRECTORY, path
        if any(version.kind != DIRECTORY for version in wanted):
            assert json.loads(self.stage.read(place)) == self.stage.history(path), path
        else:
            assert seen.kind == DIRECTORY, path

    def _check_at(self, path: str, wanted: list[Version], numbers: list[int]) -> None:
        """See each version of a path, and that there are no others."""
        through = self.diary.ever_below(path)
        for number in {0, 1, *(number + 1 for number in numbers)} - set(numbers):
            seen = self.stage.seen(f".chronicle/at/{number}/{path}")
            assert (seen is not None and seen.kind == DIRECTORY) if through else seen is None, (path, number, seen)
        for number, version in zip(numbers, wanted, strict=True):
            place = f".chronicle/at/{number}/{path}"
            seen = self.stage.seen(place)
            if version.gone and not through:
                assert seen is None, (path, number)
                continue
            assert seen is not None, (path, number)
            if version.gone:
                assert seen.kind == DIRECTORY, (path, number)
            elif version.kind == DIRECTORY:
                assert (seen.kind, seen.mode) == (DIRECTORY, version.mode), (path, number)
            elif through:
                assert seen.kind == DIRECTORY, (path, number)
                assert self.stage.read(place) == version.content, (path, number)
            elif version.kind == LINK:
                assert (seen.kind, self.stage.target(place)) == (LINK, version.content), (path, number)
            else:
                assert seen == Seen(version.kind, version.mode | 0o400, len(version.content)), (path, number)
                assert self.stage.read(place) == version.content, (path, number)

    def _check_lists(self) -> None:
        """See what is listed of directories under ``query``."""
        expected: dict[str, set[str]] = {"": set()}
        for path in (*self.diary.now.versions, *self.diary.now.things):
            while path:
                directory, _, name = path.rpartition("/")
                expected.setdefault(directory, set()).add(name)
                path = directory  # noqa: PLW2901
        for directory, names in expected.items():
            assert self.stage.names(f".chronicle/query/{directory}".rstrip("/")) == names, directory

    def _check_turns(self) -> None:
        """See the trees of all turns."""
        for turn, expected in self.diary.turns.items():
            root = f".chronicle/turn/{turn}"
            found = {}
            waiting = [root]
            while waiting:
                directory = waiting.pop()
                for name in self.stage.names(directory):
                    place = f"{directory}/{name}"
                    seen = self.stage.seen(place)
                    assert seen is not None, place
                    content = b""
                    if seen.kind == DIRECTORY:
                        waiting.append(place)
                    else:
                        content = self.stage.target(place) if seen.kind == LINK else self.stage.read(place)
                        assert seen.size == len(content)
                    found[place[len(root) + 1 :]] = (seen.kind, content, seen.mode)
            shown = {
                path: (kind, content, 0o555 if kind == DIRECTORY else 0o777 if kind == LINK else mode & 0o555)
                for path, (kind, content, mode) in expected.items()
            }
            assert found == shown, turn

    def _check_log(self, numbers: dict[str, list[int]]) -> None:
        """See the log: what was asked for, in that order."""
        rows = [json.loads(line) for line in self.stage.read(".chronicle/log").splitlines()]
        assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
        assert len(rows) == len(self.diary.now.log)
        for _, group in groupby(self.diary.now.log, key=lambda line: line.operation):
            lines = {line.path: line for line in group}  # one operation's lines are in any order
            for row in rows[: len(lines)]:
                line = lines[row["path"]]
                assert (row["op"], row["turn"]) == (line.op, line.turn), (row, line)
                assert row.get("source") in (line.sources or (None,)), (row, line)
                assert row["iteration"] == numbers[line.path][line.at], (row, line)
            assert {row["path"] for row in rows[: len(lines)]} == set(lines)
            del rows[: len(lines)]
