"""Nodes, what they have, and what hosts need of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Final, NewType

from podium.agent.base import RESOURCE_ALIASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from podium.agent.base import BaseAgent

__all__ = ["CPU", "GPU", "LOCAL_NODE", "MEMORY", "NO_NEEDS", "Needs", "Node", "NodeId", "needs_of", "unmet"]

NodeId = NewType("NodeId", str)
"""Name of a machine with hosts."""
LOCAL_NODE: Final = NodeId("local")
"""The node of an embedded Ray, the plain case of one."""
CPU: Final = "CPU"
GPU: Final = "GPU"
MEMORY: Final = "memory"
_LEAST: Final = 1e-6
"""Amounts are counted in ten-thousandths, as Ray's are; sums of them are not exact."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a host needs of its node."""

    resources: tuple[tuple[str, float], ...] = ()
    """Amounts by Ray's names of resources, sorted; ``memory`` in bytes."""
    labels: tuple[tuple[str, str], ...] = ()
    """The labels that the node must have, sorted."""

    def over(self, others: Needs) -> Needs:
        """Return these, and of others those that these do not name."""
        resources, labels = dict(others.resources) | dict(self.resources), dict(others.labels) | dict(self.labels)
        return Needs(tuple(sorted(resources.items())), tuple(sorted(labels.items())))

    def __str__(self) -> str:
        """Return the needs in words, such as ``CPU 2, zone=a``."""
        resources = (f"{name} {amount:.10g}" for name, amount in self.resources)
        return ", ".join((*resources, *(f"{name}={value}" for name, value in self.labels)))


NO_NEEDS: Final = Needs()


@dataclass(frozen=True, slots=True)
class Node:
    """A node that hosts may start on."""

    node_id: NodeId
    resources: Mapping[str, float] = field(default_factory=lambda: {CPU: inf})
    """Amounts by Ray's names of resources: all that the node has, or what is left of it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    cores: int = 1
    is_drained: bool = False
    """Whether its agents are moved to other nodes, and no host starts on it."""
    end_timeout_s: float | None = None
    """Timeout of its end, if it ends: its turns have a part of that. ``None``: they take as long as they take."""
    machine: str = ""
    """The hostname of its machine; empty: that of the service."""

    @property
    def weight(self) -> float:
        """Its share of a load, against that of other nodes: its CPUs as Ray counts them."""
        cpus = self.resources.get(CPU, 0.0)
        return cpus if 0.0 < cpus < inf else 1.0

    def without(self, *taken: Needs) -> Node:
        """Return the node with what is left of it."""
        left = dict(self.resources)
        for needs in taken:
            for name, amount in needs.resources:
                left[name] = left.get(name, 0.0) - amount
        return replace(self, resources=left)

    def lacks(self, needs: Needs) -> Needs:
        """Return those of some needs that the node cannot meet."""
        return Needs(
            tuple(each for each in needs.resources if self.resources.get(each[0], 0.0) < each[1] - _LEAST),
            tuple(each for each in needs.labels if self.labels.get(each[0]) != each[1]),
        )


def needs_of(agent_class: type[BaseAgent]) -> Needs:
    """Return what a class declares."""
    resources = {RESOURCE_ALIASES.get(name, name): float(amount) for name, amount in agent_class.resources.items()}
    return Needs(tuple(sorted(resources.items())), tuple(sorted(agent_class.labels.items())))


def unmet(nodes: Iterable[Node], needs: Needs, bundle: Mapping[NodeId, str | None] | None = None) -> str | None:
    """Return what each node lacks, such as ``local lacks GPU 1``; ``None`` if one lacks nothing, and is not drained.

    Args:
        bundle: the nodes that lack what the code's bundle requires, and what that is. One of which it is not known yet,
            with ``None``, counts as lacking nothing.
    """
    problems = []
    for node in nodes:
        lacks = ", ".join(filter(None, (str(node.lacks(needs)), (bundle or {}).get(node.node_id))))
        if not lacks and not node.is_drained:
            return None
        problems.append(f"{node.node_id} {f'lacks {lacks}' if lacks else 'is drained'}")
    return "; ".join(problems) or "there is none"
