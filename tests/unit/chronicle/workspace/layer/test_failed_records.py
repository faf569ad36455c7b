"""A write to a file that is partly here, whose record does not fit on the disk any more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.workspace.layer.layer import Layer
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import FileNode
from chronicle.workspace.port import LayerSpec, TreeRef

STORED = random.Random(8).randbytes(1024 * 1024 + 1_000)


def opened(directory: Path, store: MemoryBlobStore, base: TreeRef | None) -> tuple[Layer, TreeRef | None]:
    return open_layer(LayerSpec("w", directory, base, 1, 1), store, ManualClock())


def test_it_has_not_made_the_file_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryBlobStore()
    there, _ = opened(tmp_path / "there", store, None)
    made = there.create(there.root, b"large", 0o644, 0, 0)
    there.write(made, 0, STORED)
    there.flush(made)
    there.release(made)
    base = there.seal()
    there.close()

    here, _ = opened(tmp_path / "here", store, base)
    node = here.resolve(b"large")
    assert isinstance(node, FileNode)
    handle = here.open(node)
    here.write(handle, 0, b"first")

    def full(_: bytes) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(here._log, "append", full)
        with pytest.raises(OSError, match="space"):
            here.write(handle, len(STORED) - 100, b"x" * 200)
    assert node.size == len(STORED), "what the kernel believes, who was told of a failure"
    assert here.read(handle, len(STORED) - 100, 1_000) == STORED[-100:]
    here.truncate(node, len(STORED) + 50, handle)
    assert here.read(handle, len(STORED) - 100, 1_000) == STORED[-100:] + bytes(50)
    here.flush(handle)
    here.release(handle)
    with here.at("large", 2) as file:
        assert file.read() == b"first" + STORED[5:] + bytes(50)
    here.close()
