"""The trees that the layers of a node refer to: roots for garbage collection, besides those in a journal.

A workspace that was opened and never committed refers to a tree that is in no journal; so does one that was sealed by
a process which died before its commit. Layers may be in use meanwhile; a read gives a recent state of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.workspace.dir.manifest import Manifest
from chronicle.workspace.layer.disk.log import read_frames
from chronicle.workspace.layer.disk.log_records import Header, last_sealed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.workspace.port import TreeRef

__all__ = ["layer_refs"]


def layer_refs(layers: Path) -> Iterator[TreeRef]:
    """Yield the trees that the layers in a node's directory of layers refer to, of mounts and plain directories alike.

    Raises:
        UnsupportedFormat: a newer version wrote one of them.
        Corrupt: one cannot be read.
    """
    for log in sorted(layers.glob("*/*/log")):
        try:
            payloads, _ = read_frames(log.read_bytes())
        except FileNotFoundError:
            continue  # its epoch ended meanwhile; the next one starts from a tree in the journal
        if payloads:
            header = Header.decode(payloads[0])
            yield from filter(None, (header.base, header.recovered, last_sealed(payloads)[1]))
    for path in sorted(layers.glob("*/dir")):
        manifest = Manifest.load(path.parent)
        if manifest is not None:
            yield from filter(None, (manifest.base, manifest.sealed, manifest.recovered))
