"""The drained nodes: those that an operator wants to be empty. They are durable, as a document of the home."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError
from coordinator.documents import DRAINED
from coordinator.fleet.nodes.nodes import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.documents import Documents

__all__ = ["Drains"]

_FORMAT: Final = 1
_AGAIN_S: Final = 5.0
"""Pause before a document that could not be reached is read again."""

_log = structlog.stdlib.get_logger("coordinator.fleet.nodes.drains")


class Drains:
    """The drained nodes. One that is gone stays drained: it is when it comes back.

    While the document cannot be reached, none counts as drained.

    Args:
        documents: those of the home; ``None`` to keep the nodes in memory only.
    """

    def __init__(self, documents: Documents | None = None) -> None:
        self._documents = documents
        self._nodes: set[NodeId] | None = set() if documents is None else None
        """``None`` while the document was not read."""
        self._read_at_s = 0.0

    def __contains__(self, node: NodeId) -> bool:
        """Whether a node is drained."""
        return node in self._known()

    def __iter__(self) -> Iterator[NodeId]:
        """Iterate over the drained nodes, sorted."""
        return iter(sorted(self._known()))

    def add(self, node: NodeId) -> None:
        """Note that a node is drained; durable on return.

        Raises:
            ChronicleError: the document cannot be read or written; nothing has changed.
        """
        nodes = self._read()
        self._replace(nodes, nodes | {node})

    def remove(self, node: NodeId) -> None:
        """Note that a node is not drained any more; raises as `add`."""
        nodes = self._read()
        self._replace(nodes, nodes - {node})

    def _known(self) -> set[NodeId]:
        if self._nodes is None and time.monotonic() >= self._read_at_s:
            try:
                return self._read()
            except ChronicleError as error:
                self._read_at_s = time.monotonic() + _AGAIN_S
                _log.warning("drained_nodes_not_read", error=str(error))
        return self._nodes or set()

    def _read(self) -> set[NodeId]:
        """Return the nodes, from the document if it was not read.

        Raises:
            ChronicleError: it cannot be read.
        """
        if self._nodes is None:
            assert self._documents is not None
            self._nodes = _parsed(self._documents)
        return self._nodes

    def _replace(self, before: set[NodeId], nodes: set[NodeId]) -> None:
        if self._documents is not None and nodes != before:
            self._documents.write(DRAINED, json.dumps({"format": _FORMAT, "nodes": sorted(nodes)}).encode())
        self._nodes = nodes


def _parsed(documents: Documents) -> set[NodeId]:
    data = documents.read(DRAINED)
    try:
        if data is None:
            return set()
        kept = json.loads(data)
        if kept["format"] != _FORMAT:
            raise ValueError(f"format {kept['format']}")
        return {NodeId(str(node)) for node in kept["nodes"]}
    except (ValueError, KeyError, TypeError) as error:
        _log.warning("drained_nodes_not_read", path=documents.place(DRAINED), error=str(error))
        return set()
