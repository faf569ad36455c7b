"""Opening what a mount server serves: a workspace's layer over a blob store, with Chronicle's operations on it.

The zygote imports it before it forks, with everything that a server needs, so that servers share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.opening import open_blobs
from chronicle.clock import SystemClock
from chronicle.errors import StorageRefused
from chronicle.fuse.deadlines import ParkingPolicy, TimedBlobStore
from chronicle.fuse.served.operations import ChronicleOperations
from chronicle.fuse.server.engine import Served
from chronicle.workspace.layer.opening import open_layer

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobStore
    from chronicle.fuse.server.request import MountRequest
    from chronicle.fuse.watchdog import Heartbeat
    from chronicle.settings import Settings

__all__ = ["open_served"]


def open_served(
    request: MountRequest, heartbeat: Heartbeat, *, deadline_s: float, settings: Settings | None = None
) -> Served:
    """Open the layer of a mount.

    Args:
        request: the order.
        heartbeat: records progress.
        deadline_s: time limit of one read of a blob store beyond a network, seconds.
        settings: those of the zygote's environment, read once; None to read them here.

    Raises:
        StorageRefused: the operating system refused to open it.
        ChronicleError: it could not be opened, or the blob store is unreachable.
    """
    blobs: BlobStore = open_blobs(request.blobs_url)
    far = None
    if blobs.is_far:
        blobs = far = TimedBlobStore(blobs, deadline_s, heartbeat.beat)
    try:
        layer, _ = open_layer(request.spec, blobs, SystemClock(), settings)
    except OSError as error:
        blobs.close()
        where = error.filename or request.spec.layers / request.spec.workspace_id
        raise StorageRefused(f"{where} could not be opened: {error.strerror}") from error
    except BaseException:
        blobs.close()
        raise
    layer.beat = heartbeat.beat
    if far is not None:
        far.parking = ParkingPolicy(lambda: layer.log_end)
    return Served(layer, ChronicleOperations(layer, far.parking if far is not None else None))
