"""What a workspace says of its past against a diary of what was done to it, in process.

Directories move, die and come back as something else, between commits, deaths of the process and take-overs; see
`tests/stateful/story.py`. `tests/fuse/workspace/test_history_model.py` does the same on a real mount.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import NotFound
from chronicle.fuse.served.magic_text import query_pieces
from chronicle.fuse.served.operations import ChronicleOperations
from chronicle.workspace.committed.workspace import CommittedWorkspace
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.layers import abandon, file_at, place
from tests.stateful.diary import DIRECTORY, FILE, LINK
from tests.stateful.story import NAMES, STEPS, Seen, Step, Story, random_story
from tests.stateful.walker import Walker

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: DIRECTORY, stat.S_IFLNK: LINK}

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
steps = st.builds(Step, st.sampled_from([*STEPS, "rollback"]), paths, paths, st.integers(0, 99))


class InProcess:
    """A layer, and the operations of a mount over it."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="history-model-"))
        self.blobs = MemoryBlobStore()
        self.clock = ManualClock()
        self.turn = 1
        self.epoch = 1
        self.base: TreeRef | None = None
        self.open()

    def open(self) -> None:
        spec = LayerSpec("w", self.directory, self.base, self.epoch, self.turn)
        self.layer, _ = open_layer(spec, self.blobs, self.clock)
        self.base = self.layer.base
        self.layer.begin_turn(self.turn)
        self.operations = ChronicleOperations(self.layer)
        self.walker = Walker(self.operations)

    def close(self) -> None:
        self.layer.close()
        shutil.rmtree(self.directory)

    def now_ms(self) -> int:
        self.clock.advance(1)
        return self.clock.now_ms()

    # -- what is done ---------------------------------------------------------------------------------------------

    def write(self, path: str, content: bytes) -> None:
        layer = self.layer
        if layer.resolve(path.encode()) is None:
            handle = layer.create(*place(layer, path), 0o644, *layer.owner)
        else:
            handle = layer.open(file_at(layer, path), truncate=True)
        if content:
            layer.write(handle, 0, content)
        layer.flush(handle)
        layer.release(handle)

    def mkdir(self, path: str) -> None:
        self.layer.make(*place(self.layer, path), 0o40755, *self.layer.owner)

    def symlink(self, path: str, target: bytes) -> None:
        self.layer.make(*place(self.layer, path), stat.S_IFLNK | 0o777, *self.layer.owner, target)

    def remove(self, path: str, *, directory: bool) -> None:
        (self.layer.rmdir if directory else self.layer.unlink)(*place(self.layer, path))

    def rename(self, old: str, new: str, *, exchange: bool = False) -> None:
        self.layer.rename(*place(self.layer, old), *place(self.layer, new), 2 if exchange else 0)

    def link(self, old: str, new: str) -> None:
        self.layer.link(file_at(self.layer, old), *place(self.layer, new))

    def chmod(self, path: str, mode: int) -> None:
        node = self.layer.resolve(path.encode())
        assert node is not None
        self.layer.set_mode(node, mode, *self.layer.owner)

    def set_attribute(self, path: str, value: bytes) -> None:
        self.layer.set_xattr(file_at(self.layer, path), b"user.one", value)

    def commit(self) -> bool:
        ref = self.base = self.layer.seal()
        self.layer.adopt(ref)
        self.turn += 1
        self.layer.begin_turn(self.turn)
        return True

    def rollback(self) -> None:
        self.layer.rollback()
        self.operations = ChronicleOperations(self.layer)  # it is mounted anew
        self.walker = Walker(self.operations)

    def kill(self, how: int) -> None:
        """The process dies, now and then after a seal that was not adopted; or it ends in good order."""
        if how % 3 == 0:
            self.layer.close()
        else:
            if how % 3 == 1:
                self.layer.seal()
            abandon(self.layer)
        self.open()

    # -- what is said ---------------------------------------------------------------------------------------------

    def seen(self, path: str) -> Seen | None:
        try:
            found = self.walker.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Seen(KINDS[stat.S_IFMT(found.mode)], stat.S_IMODE(found.mode), found.size)

    def read(self, path: str) -> bytes:
        return self.walker.read(path)

    def target(self, path: str) -> bytes:
        return self.walker.readlink(path)

    def names(self, path: str) -> set[str]:
        return self.walker.names(path)

    def history(self, path: str) -> list[dict[str, Any]]:
        try:
            found = self.layer.history(path)
        except NotFound:
            return []
        rows: list[dict[str, Any]] = json.loads(b"".join(query_pieces(found)))
        return rows

    def at(self, path: str, number: int) -> bytes:
        with self.layer.at(path, number) as file:
            return file.read()


def play(story: list[Step]) -> None:
    """Play a story, and see that the last commit says the same without a layer, and elsewhere."""
    stage = InProcess()
    try:
        played = Story(stage)
        played.play(story)
        played.take(Step("commit", "a", "a", 0))
        played.check()
        committed = CommittedWorkspace(stage.blobs, stage.base)
        for path in played.diary.now.versions:
            assert list(committed.history(path)) == list(stage.layer.history(path))
    finally:
        stage.close()


@settings(max_examples=2_000 if NIGHTLY else 60)
@given(st.lists(steps, max_size=40))
def test_everything_said_of_the_past_is_what_was_done(story: list[Step]) -> None:
    play(story)


@pytest.mark.parametrize("seed", range(200 if NIGHTLY else 6))
def test_long_stories(seed: int) -> None:
    play(random_story(seed, 250))
