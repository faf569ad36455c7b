"""Goes back and forth between two commits of a workspace until it is killed. Run by ``test_restore_killed.py``.

Arguments: the directory of layers, the blob store's URL, and both commits, each as tree id and commit id. Writes a line
when it begins.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.ids import BlobId
from chronicle.workspace.layer.disk import log
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec, TreeRef


def main() -> None:
    layers, url, *ids = sys.argv[1:]
    log._BATCH_FRAMES = 1  # type: ignore[misc]  # one write a record, so that there is time to be killed between them
    one, other = (TreeRef(BlobId(ids[at]), BlobId(ids[at + 1])) for at in (0, 2))
    layer, _ = open_layer(LayerSpec("w", Path(layers), other, 1, 2), PackBlobStore(url), SystemClock())
    print("began", flush=True)
    while True:
        layer.restore(one)
        layer.restore(other)


if __name__ == "__main__":
    main()
