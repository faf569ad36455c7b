from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import StorageRefused
from chronicle.fuse.server.opening import open_served
from chronicle.fuse.server.request import MountRequest
from chronicle.fuse.watchdog import unwatched_heartbeat
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from pathlib import Path


def test_a_layer_that_the_system_refuses_to_open_is_told_with_its_path(tmp_path: Path) -> None:
    log = tmp_path / "layers" / "w" / "1" / "log"
    log.mkdir(parents=True)
    spec = LayerSpec("w", tmp_path / "layers", None, 1, 1)
    request = MountRequest(spec, f"file://{tmp_path}/blobs", tmp_path / "mount")
    with pytest.raises(StorageRefused, match=f"{log} could not be opened: Is a directory"):
        open_served(request, unwatched_heartbeat(), deadline_s=1)
    log.rmdir()
    served = open_served(request, unwatched_heartbeat(), deadline_s=1)
    assert served.engine.unreported is None
    served.engine.close()
