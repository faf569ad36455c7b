"""What hosts, the zygote and mount servers tell each other of workspaces, as values of `chronicle.control.messages`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronicle.ids import BlobId
from chronicle.workspace.port import Iteration, LayerSpec, Quota, TreeRef

if TYPE_CHECKING:
    from chronicle.control.messages import Message

__all__ = [
    "iteration_from_wire",
    "iteration_to_wire",
    "ref_from_wire",
    "ref_to_wire",
    "spec_from_wire",
    "spec_to_wire",
]


def ref_to_wire(ref: TreeRef | None) -> list[str] | None:
    """Return a tree reference as a list of its two ids."""
    return None if ref is None else [ref.tree_id, ref.oplog_id]


def ref_from_wire(value: list[str] | None) -> TreeRef | None:
    """Return the tree reference of a list of its two ids."""
    return None if value is None else TreeRef(BlobId(value[0]), BlobId(value[1]))


def spec_to_wire(spec: LayerSpec) -> Message:
    """Return a layer's specification as a map."""
    return {
        "workspace_id": spec.workspace_id,
        "layers": os.fspath(spec.layers.absolute()),
        "base": ref_to_wire(spec.base),
        "epoch": spec.epoch,
        "turn": spec.turn,
        "quota": None if spec.quota is None else [spec.quota.bytes, spec.quota.files, spec.quota.file_bytes],
        "gives_up_when_full": spec.gives_up_when_full,
    }


def spec_from_wire(value: Message) -> LayerSpec:
    """Return the layer's specification of a map."""
    return LayerSpec(
        workspace_id=value["workspace_id"],
        layers=Path(value["layers"]),
        base=ref_from_wire(value["base"]),
        epoch=value["epoch"],
        turn=value["turn"],
        quota=None if value["quota"] is None else Quota(*value["quota"]),
        gives_up_when_full=value["gives_up_when_full"],
    )


def iteration_to_wire(item: Iteration) -> list[object]:
    """Return one version of a path as a list of its fields, in their order."""
    return [item.iteration, item.timestamp, item.size, item.hash, item.op, item.turn, item.source, item.mode]


def iteration_from_wire(value: list[Any]) -> Iteration:
    """Return the version of a list of its fields."""
    return Iteration(*value)
