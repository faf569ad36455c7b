"""What operations on a layer cost as there is more of what they are about: counted, not timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.workspace.layer_open import open_layer
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from pathlib import Path

MANY = 600


class CountingName(bytes):
    """A name that counts how often it was compared with another one."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingName.comparisons += 1
        return bytes.__eq__(self, other)

    def __lt__(self, other: bytes) -> bool:
        CountingName.comparisons += 1
        return bytes.__lt__(self, other)

    __hash__ = bytes.__hash__


def test_setting_an_extended_attribute_does_not_look_at_the_others(tmp_path: Path) -> None:
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), MemoryBlobStore(), ManualClock())
    handle = layer.create(layer.root, b"f", 0o644, 0, 0)
    layer.release(handle)
    names = [CountingName(b"user.%d" % number) for number in range(MANY)]
    CountingName.comparisons = 0
    for value in (b"first", b"second", None):
        for name in names:
            layer.set_xattr(handle.node, CountingName(name), value)
    layer.close()
    assert CountingName.comparisons < 20 * 3 * MANY
    assert not handle.node.xattrs
