"""What a mount server serves: a workspace's layer over a blob store, with Chronicle's operations on it.

Imported by the zygote before it forks, with all that a server needs, so that servers share it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.blobs.fsspec_store import FsspecBlobStore
from chronicle.clock import SystemClock
from chronicle.fuse.deadlines import TimedBlobStore
from chronicle.fuse.operations import ChronicleOperations
from chronicle.fuse.pulse import Pulse, unwatched
from chronicle.fuse.server import MountRequest, Served
from chronicle.workspace.layer_open import open_layer
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from chronicle.blobs.store import BlobStore
    from chronicle.workspace.layer import Layer
    from chronicle.workspace.port import TreeRef

__all__ = ["open_served", "warm_up"]

_REHEARSALS: Final = 16
"""Some 5 ms each."""


def open_served(request: MountRequest, pulse: Pulse, *, deadline_s: float) -> Served:
    """Open the layer of a mount.

    Args:
        request: what is to be mounted where.
        pulse: says that it gets on.
        deadline_s: how long one read of a blob store beyond a network may take, seconds.

    Raises:
        ChronicleError: it could not be opened, or the blob store not be reached.
    """
    _, layer, recovered = _open(request, pulse, deadline_s)
    layer.beat = pulse.beat
    return Served(layer, ChronicleOperations(layer), recovered)


def _open(request: MountRequest, pulse: Pulse, deadline_s: float) -> tuple[BlobStore, Layer, TreeRef | None]:
    blobs: BlobStore = FsspecBlobStore(request.blobs_url)
    if blobs.is_far:
        blobs = TimedBlobStore(blobs, deadline_s, pulse.beat)
    try:
        layer, recovered = open_layer(request.spec, blobs, SystemClock())
    except BaseException:
        blobs.close()
        raise
    return blobs, layer, recovered


def warm_up(protocol: str | None = None) -> None:
    """Run what is imported or set up at first use, so that each server need not do it again.

    It is run some times over: the interpreter notes in the bytecode itself how often it ran and on what (PEP 659), and
    what is settled is not written to by each server again.

    Args:
        protocol: of a blob store beyond a network that servers will use, if there is one.
    """
    if protocol is not None:
        from chronicle.blobs.fsspec_objects import preload  # noqa: PLC0415 - 40 MB, for who needs it

        preload(protocol)
    with tempfile.TemporaryDirectory(prefix="chronicle-warm-up-") as name:
        for number in range(_REHEARSALS):
            directory = Path(name, str(number))
            spec = LayerSpec(workspace_id="warm-up", layers=directory / "layers", base=None, epoch=1, turn=1)
            blobs, layer, _ = _open(MountRequest(spec, f"file://{directory}/blobs", directory), unwatched(), 1)
            layer.seal()
            layer.close()
            blobs.close()
