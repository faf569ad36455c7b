"""A workspace with a small quota against a model: a refusal changes nothing, and what is held is known exactly."""

from __future__ import annotations

import copy
import errno
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.workspace.api.workspace import open_api_workspace
from chronicle.workspace.port import LayerSpec, Quota, TreeRef

if TYPE_CHECKING:
    from collections.abc import Callable

QUOTA = Quota(bytes=100, files=5, file_bytes=60)
REFUSALS = (errno.EDQUOT, errno.EFBIG)
names = st.sampled_from(["a", "b", "c", "d", "e", "f"])
sizes = st.sampled_from([0, 1, 20, 40, 60, 61, 100])


@dataclass(eq=False)
class File:
    """A file, whatever its names."""

    content: bytes


World = dict[str, "File | None"]
"""Path → its file; None for a directory."""


class QuotaModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="quota-model-"))
        self.blobs = MemoryBlobStore()
        self.base: TreeRef | None = None
        self.world: World = {}
        self.committed: World = {}
        self.history: list[tuple[TreeRef, World]] = []
        self.open()

    def open(self) -> None:
        spec = LayerSpec("w", self.directory, self.base, epoch=1, turn=1, quota=QUOTA)
        self.workspace = open_api_workspace(spec, self.blobs)

    def teardown(self) -> None:
        self.workspace.close()
        shutil.rmtree(self.directory)

    def held(self, world: World) -> tuple[int, int]:
        files = {id(file): len(file.content) for file in world.values() if file is not None}
        return sum(files.values()), len(files) + list(world.values()).count(None)

    def attempt(self, act: Callable[[], object], after: World) -> None:
        """Do something; it is refused just if the quota has no room for what it would give."""
        size, count = self.held(after)
        before_size, before_count = self.held(self.world)
        largest = max((len(file.content) for file in after.values() if file is not None), default=0)
        allowed = (
            size <= max(QUOTA.bytes or 0, before_size)
            and count <= max(QUOTA.files or 0, before_count)
            and largest <= (QUOTA.file_bytes or 0)
        )
        if allowed:
            act()
            self.world = after
        else:
            with pytest.raises(OSError, check=lambda error: error.errno in REFUSALS):
                act()

    # -- operations -----------------------------------------------------------------------------------------------

    @rule(name=names, size=sizes)
    def put(self, name: str, size: int) -> None:
        """Truncate, then write: a refused write leaves an empty file, as it does on a disk."""
        if name in self.world and self.world[name] is None:
            return
        empty = copy.copy(self.world)
        self.set(empty, name, b"")
        self.attempt(lambda: self.workspace.write(name, b""), empty)
        if name in self.world:
            full = copy.copy(self.world)
            self.set(full, name, b"x" * size)
            self.attempt(lambda: self.write_over(name, 0, size), full)

    @rule(name=names, size=sizes)
    def append(self, name: str, size: int) -> None:
        file = self.world.get(name)
        if file is not None:
            after = copy.copy(self.world)
            self.set(after, name, file.content + b"x" * size)
            self.attempt(lambda: self.write_over(name, len(file.content), size), after)

    @rule(name=names, size=sizes)
    def truncate(self, name: str, size: int) -> None:
        file = self.world.get(name)
        if file is not None:
            after = copy.copy(self.world)
            self.set(after, name, file.content[:size].ljust(size, b"\0"))
            self.attempt(lambda: self.workspace.truncate(name, size), after)

    def write_over(self, name: str, offset: int, size: int) -> None:
        with self.workspace.open(name, "r+b") as file:
            file.seek(offset)
            if size:
                file.raw.write(b"x" * size)  # type: ignore[attr-defined]

    def set(self, world: World, name: str, content: bytes) -> None:
        """Give a file a content, under all of its names."""
        old = world.get(name)
        new = File(content)
        for other, file in list(world.items()):
            if file is not None and file is old:
                world[other] = new
        world[name] = new

    @rule(name=names)
    def mkdir(self, name: str) -> None:
        if name not in self.world:
            self.attempt(lambda: self.workspace.make_directory(name), {**self.world, name: None})

    @rule(old=names, new=names)
    def link(self, old: str, new: str) -> None:
        file = self.world.get(old)
        if file is not None and new not in self.world:
            self.attempt(lambda: self.workspace.link(old, new), {**self.world, new: file})

    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        if old not in self.world or old == new:
            return
        moving, target = self.world[old], self.world.get(new)
        if new in self.world and ((moving is None) != (target is None)):
            return
        after = copy.copy(self.world)
        if not (moving is not None and moving is target):
            after[new] = after.pop(old)
        self.attempt(lambda: self.workspace.rename(old, new), after)

    @rule(name=names)
    def remove(self, name: str) -> None:
        if name in self.world:
            after = {other: file for other, file in self.world.items() if other != name}
            self.attempt(lambda: self.workspace.remove_tree(name), after)

    # -- turns ----------------------------------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        self.base = self.workspace.seal()
        self.workspace.adopt(self.base)
        self.committed = copy.copy(self.world)
        self.history.append((self.base, self.committed))

    @rule()
    def rollback(self) -> None:
        self.workspace.rollback()
        self.world = copy.copy(self.committed)

    @rule()
    def reopen(self) -> None:
        self.workspace.close()
        self.open()

    @precondition(lambda self: self.history)
    @rule(pick=st.integers(0))
    def restore(self, pick: int) -> None:
        ref, then = self.history[pick % len(self.history)]
        self.attempt(lambda: self.workspace.restore(ref), copy.copy(then))

    @precondition(lambda self: self.history)
    @rule(pick=st.integers(0), name=names)
    def restore_one(self, pick: int, name: str) -> None:
        """A path by itself, which is then no name of another file."""
        ref, then = self.history[pick % len(self.history)]
        if name not in then or name in self.world:
            return
        file = then[name]
        after = {**self.world, name: File(file.content) if file is not None else None}
        self.attempt(lambda: self.workspace.restore(ref, name), after)

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def it_is_as_the_model_has_it(self) -> None:
        found = {
            name: None if status.kind.value == "dir" else self.workspace.read(name)
            for name, status in self.workspace.list()
        }
        assert found == {name: file.content if file is not None else None for name, file in self.world.items()}
        assert self.workspace.usage == self.held(self.world)
        assert self.workspace.usage.bytes <= (QUOTA.bytes or 0)
        assert self.workspace.usage.files <= (QUOTA.files or 0)


TestQuotaModel = QuotaModel.TestCase
TestQuotaModel.settings = settings(max_examples=40, stateful_step_count=40)
