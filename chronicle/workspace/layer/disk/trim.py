"""The disk usage of a node's layers, and trimming those that are closed."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from chronicle.workspace.layer.disk.files import LayerFiles
from chronicle.workspace.layer.disk.log import read_frames
from chronicle.workspace.layer.disk.log_records import FLOORS, Header, code_of, last_sealed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["layer_bytes", "trim_layers"]


def layer_bytes(layers: Path) -> int:
    """Return the disk usage of a node's directory of layers, bytes."""
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
    """Remove clean data files beyond a limit from a workspace's layers.

    The caller holds the workspace's lock. Layers with uncommitted changes are left as they are: opening trims them.

    Args:
        home: the workspace's directory of layers.
        warm_bytes: limit of each layer, bytes.

    Raises:
        UnsupportedFormat: a newer version wrote one of them.
    """
    for log in sorted(home.glob("*/log")):
        payloads, _ = read_frames(log.read_bytes())
        first, _ = last_sealed(payloads)
        if not payloads:
            continue
        Header.decode(payloads[0])  # refuses newer formats
        if all(code_of(payload) == FLOORS for payload in payloads[first:]):
            files = LayerFiles(log.parent)
            try:
                if files.power_lost:
                    files.remove_orphans(())
                files.drop_clean(files.warm.surplus(warm_bytes, ()))
            finally:
                files.close()
