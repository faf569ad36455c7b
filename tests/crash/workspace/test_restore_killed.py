"""A process that goes back to other commits is killed with SIGKILL, at any time: what is left is one of them, whole."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.workspace.layer.disk.log import read_frames
from chronicle.workspace.layer.disk.log_records import count_complete
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from pathlib import Path

FILES = 1000
KILLS = 20
"""At most; three in the middle of what is logged will do, and nearly every kill is."""
LOGGED = 196_000
"""Bytes that going there and back logs, one record a write: a kill comes after any of them."""


def test_what_is_left_is_one_of_them(tmp_path: Path) -> None:
    url = (tmp_path / "blobs").as_uri()
    layers = tmp_path / "layers"
    blobs = PackBlobStore(url)
    layer, _ = open_layer(LayerSpec("w", layers, None, 1, 1), blobs, SystemClock())
    refs: list[TreeRef] = []
    for number in range(2):
        name = b"directory %d" % number
        if number:
            layer.rename(layer.root, b"directory 0", layer.root, name)
        else:
            layer.make(layer.root, name, 0o40755, *layer.owner)
        directory = layer.resolve(name)
        assert isinstance(directory, DirNode)
        for at in range(FILES // 2):
            handle = layer.create(directory, b"%d %d" % (number, at), 0o644, *layer.owner)
            layer.write(handle, 0, b"file %d" % at)
            layer.flush(handle)
            layer.release(handle)
        refs.append(layer.seal())
        layer.adopt(refs[-1])
        layer.begin_turn(number + 2)
    layer.close()
    chance = random.Random(1)
    log = layers / "w" / "1" / "log"
    cut = 0
    for _ in range(KILLS):
        ids = [part for ref in refs for part in (ref.tree_id, ref.oplog_id)]
        command = [sys.executable, "-m", "tests.crash.workspace.restore_work", str(layers), url, *ids]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "began\n"
            size = log.stat().st_size + chance.randrange(LOGGED)
            deadline = time.monotonic() + DEADLINE_S
            while log.stat().st_size <= size:  # without a pause, so that it is killed there and not long after it
                assert time.monotonic() < deadline
            process.kill()
            process.wait(DEADLINE_S)
        payloads, _ = read_frames(log.read_bytes())
        cut += count_complete(payloads) < len(payloads)
        layer, recovered = open_layer(LayerSpec("w", layers, refs[-1], 1, 2), blobs, SystemClock())
        assert recovered is None
        assert layer.seal().tree_id in {ref.tree_id for ref in refs}
        last = layer.history_view().last(b"directory 0")
        assert last is not None
        assert (layer.resolve(b"directory 0") is None) == last.deleted
        layer.close()
        if cut == 3:
            break
    assert cut
