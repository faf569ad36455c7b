"""The order for a mount server, and the exit codes by which it ends."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronicle.fuse import control

if TYPE_CHECKING:
    from chronicle.workspace.port import LayerSpec

__all__ = ["Exit", "MountRequest", "request_from_wire", "request_to_wire"]


class Exit(IntEnum):
    """How a mount server's process ends: what the zygote does next depends on it."""

    CLOSED = 0
    """It was told to; or someone unmounted it from outside."""
    ROLLED_BACK = 10
    """The layer is at its base; mount it again."""
    FAILED = 11
    """An operation raised what it should not; it is in the log. Mount it again, a few times."""
    REFUSED = 12
    """It could not be opened or mounted; the channel said why."""


@dataclass(frozen=True, slots=True)
class MountRequest:
    """What is to be mounted where."""

    spec: LayerSpec
    blobs_url: str
    """The blob store, as fsspec names it: ``file:///…``, ``s3://…``."""
    mountpoint: Path
    source: str = "chronicle"
    """What the system shows as the mount's device."""


def request_to_wire(request: MountRequest) -> dict[str, Any]:
    """Return a request as a map."""
    return {
        "spec": control.spec_to_wire(request.spec),
        "blobs_url": request.blobs_url,
        "mountpoint": os.fspath(request.mountpoint),
        "source": request.source,
    }


def request_from_wire(value: dict[str, Any]) -> MountRequest:
    """Return the request of such a map; what else is in it does not matter."""
    return MountRequest(
        spec=control.spec_from_wire(value["spec"]),
        blobs_url=value["blobs_url"],
        mountpoint=Path(value["mountpoint"]),
        source=value["source"],
    )
