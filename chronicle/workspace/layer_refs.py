"""What the layers of a node need, and take: for whoever collects blobs, and for who counts.

The trees that they stand on are roots, besides those that a journal names. A workspace that was opened and never
committed stands on a tree that no journal has; so does one that was sealed by a process which died before its commit.
Layers may be in use meanwhile: what is read is what they had a moment ago.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from chronicle.workspace.dir_memory import Memory
from chronicle.workspace.layer_files import LayerFiles
from chronicle.workspace.layer_log import read_frames
from chronicle.workspace.layer_records import FLOORS, Header, code_of
from chronicle.workspace.layer_replay import last_sealed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.workspace.port import TreeRef

__all__ = ["layer_bytes", "layer_refs", "trim_layers"]


def layer_refs(layers: Path) -> Iterator[TreeRef]:
    """Yield the trees that the layers in a node's directory of layers stand on, mounts' and plain directories' alike.

    Raises:
        UnsupportedFormat: a newer version wrote one of them.
        Corrupt: one cannot be read.
    """
    for log in sorted(layers.glob("*/*/log")):
        try:
            payloads, _ = read_frames(log.read_bytes())
        except FileNotFoundError:
            continue  # its epoch ended meanwhile; the next one stands on what the journal has
        if payloads:
            header = Header.decode(payloads[0])
            yield from filter(None, (header.base, header.recovered, last_sealed(payloads)[1]))
    for memory in sorted(layers.glob("*/dir")):
        remembered = Memory.load(memory.parent)
        if remembered is not None:
            yield from filter(None, (remembered.base, remembered.sealed, remembered.recovered))


def layer_bytes(layers: Path) -> int:
    """Return what the layers in a node's directory of layers take on the disk, bytes."""
    total = 0
    for path in layers.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:  # removed meanwhile
            continue
        if stat.S_ISREG(status.st_mode):
            total += status.st_blocks * 512
    return total


def trim_layers(home: Path, warm_bytes: int) -> None:
    """Remove data files that the blob store has too from a workspace's layers, beyond what is to be kept.

    The caller holds the workspace's lock. Layers that hold something that was not committed are left as they are: they
    are trimmed when they are opened.

    Raises:
        UnsupportedFormat: a newer version wrote one of them.
    """
    for log in sorted(home.glob("*/log")):
        payloads, _ = read_frames(log.read_bytes())
        first, _ = last_sealed(payloads)
        if payloads and all(code_of(payload) == FLOORS for payload in payloads[first:]):
            Header.decode(payloads[0])
            files = LayerFiles(log.parent)
            try:
                if files.power_lost:
                    files.remove_orphans(())
                files.drop_clean(files.warm.surplus(warm_bytes, ()))
            finally:
                files.close()
