"""The drained nodes: those that an operator wants to be empty. They are durable, as a document of the home."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError
from coordinator.documents import DRAINED
from coordinator.fleet.nodes import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.documents import Documents

__all__ = ["Drains"]

_FORMAT: Final = 1

_log = structlog.stdlib.get_logger("coordinator.fleet.drains")


class Drains:
    """The drained nodes. One that is gone stays drained: it is when it comes back.

    Args:
        documents: those of the home; ``None`` to keep the nodes in memory only.
    """

    def __init__(self, documents: Documents | None = None) -> None:
        self._documents = documents
        self._nodes = _read(documents) if documents is not None else set()

    def __contains__(self, node: NodeId) -> bool:
        """Whether a node is drained."""
        return node in self._nodes

    def __iter__(self) -> Iterator[NodeId]:
        """Iterate over the drained nodes, sorted."""
        return iter(sorted(self._nodes))

    def add(self, node: NodeId) -> None:
        """Note that a node is drained; durable on return.

        Raises:
            ChronicleError: it cannot be written; nothing has changed.
        """
        self._replace(self._nodes | {node})

    def remove(self, node: NodeId) -> None:
        """Note that a node is not drained any more; raises as `add`."""
        self._replace(self._nodes - {node})

    def _replace(self, nodes: set[NodeId]) -> None:
        if self._documents is not None and nodes != self._nodes:
            self._documents.write(DRAINED, json.dumps({"format": _FORMAT, "nodes": sorted(nodes)}).encode())
        self._nodes = nodes


def _read(documents: Documents) -> set[NodeId]:
    try:
        data = documents.read(DRAINED)
        if data is None:
            return set()
        kept = json.loads(data)
        if kept["format"] != _FORMAT:
            raise ValueError(f"format {kept['format']}")
        return {NodeId(str(node)) for node in kept["nodes"]}
    except (ChronicleError, ValueError, KeyError, TypeError) as error:
        _log.warning("drained_nodes_not_read", path=documents.place(DRAINED), error=str(error))
        return set()
