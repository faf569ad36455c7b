"""The messages of the control protocol: answers and errors, and the values in them, as MessagePack.

A request is a map with ``op`` and the operation's arguments; its answer is ``{"ok": value}`` or
``{"error"}`` as `chronicle.error_wire` has it. Both ends are of one installation and one user, so the protocol has no
version of its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import msgpack

from chronicle.error_wire import error_from_wire, error_to_wire
from chronicle.errors import Unavailable
from chronicle.ids import BlobId
from chronicle.workspace.port import Iteration, LayerSpec, Quota, TreeRef

__all__ = [
    "Ended",
    "Message",
    "answer_error",
    "answer_ok",
    "iteration_from_wire",
    "iteration_to_wire",
    "pack",
    "raise_error",
    "ref_from_wire",
    "ref_to_wire",
    "spec_from_wire",
    "spec_to_wire",
    "unpack",
]

Message = dict[str, Any]
"""A frame's content."""


class Ended(Unavailable):
    """No process serves a socket: it has ended, or is ending and accepts no requests. Its mounts end with it.

    Not raised for a process that exists and does not answer: that may have been stopped.
    """


def pack(message: Message) -> bytes:
    """Return a message as MessagePack. Paths are ``str``, with surrogate escapes where their bytes are not UTF-8."""
    body: bytes = msgpack.packb(message, unicode_errors="surrogateescape")
    return body


def unpack(body: bytes) -> Message:
    """Return the message in MessagePack bytes."""
    message: Message = msgpack.unpackb(body, unicode_errors="surrogateescape")
    return message


def answer_ok(value: object = None) -> Message:
    """Return the answer to an operation that succeeded."""
    return {"ok": value}


def answer_error(error: Exception) -> Message:
    """Return the answer to an operation that failed. Errors that are no `ChronicleError` become `Unavailable`."""
    return {"error": error_to_wire(error, Unavailable)}


def raise_error(error: Message) -> NoReturn:
    """Raise the error of an answer."""
    raise error_from_wire(error, Unavailable)


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
