"""What nodes lack for code bundles: each bundle is looked at once on each node. Pure.

The manager of a node says what its Python has. That is asked for of several nodes only: of one node, the host says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coordinator.fleet.model import Code
    from coordinator.fleet.nodes.nodes import NodeId

__all__ = ["BundleFits"]


class BundleFits:
    """What is known of the bundles in use."""

    def __init__(self) -> None:
        self._lacking: dict[tuple[NodeId, str], str] = {}
        """By node and bundle; empty texts for nothing."""

    def note(self, node: NodeId, bundle: str, lacking: str) -> None:
        """Record what a node lacks for a bundle; an empty text for nothing."""
        self._lacking[node, bundle] = lacking

    def forget_lacking(self) -> None:
        """Have nodes asked again that lacked something."""
        self._lacking = {key: lacking for key, lacking in self._lacking.items() if not lacking}

    def to_ask(self, nodes: Iterable[NodeId], codes: Iterable[Code]) -> list[tuple[NodeId, str]]:
        """Return of which nodes it is not known what they lack for which bundles of codes; others are forgotten."""
        bundles = sorted({code.bundle for code in codes if code.bundle})
        pairs = [(node, bundle) for node in nodes for bundle in bundles]
        if len(self._lacking) > len(pairs):
            self._lacking = {key: self._lacking[key] for key in pairs if key in self._lacking}
        return [key for key in pairs if key not in self._lacking]

    def unfit(self, nodes: Iterable[NodeId], codes: Iterable[Code]) -> Mapping[Code, Mapping[NodeId, str | None]]:
        """Return the input of the plan; see `coordinator.fleet.plan.Observed.unfit`."""
        there = list(nodes)
        found: dict[Code, Mapping[NodeId, str | None]] = {}
        for code in codes:
            if code.bundle:
                of_nodes = {node: self._lacking.get((node, code.bundle)) for node in there}
                found[code] = {node: lacking for node, lacking in of_nodes.items() if lacking != ""}
        return found
