"""The configuration of a coordinator, shared by its actor and its control loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coordinator.fleet.nodes.nodes import NodeId
    from coordinator.ray.node_manager import NodeConfig
    from coordinator.store.links import StoreLink

__all__ = ["CoordinatorConfig"]


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """The configuration of a coordinator, fixed for its life."""

    home: Path
    """The directory of the home."""
    home_id: str
    journal: str
    """The URL of the journal; empty with ``store``."""
    store: StoreLink | None
    """The store process of its node, if the coordinator is to open no store itself."""
    logs: Path
    node: NodeConfig
    """The configuration of the node managers, but for the names of their nodes."""
    named_nodes: Mapping[str, NodeId]
    """The names of nodes that have a manager already, by Ray's ids."""
    is_embedded: bool
    """Whether the cluster is the service's own: then no other node comes."""
    known_agents: Path
    """The file of `coordinator.registry.known_agents`, read at the start."""
    serving: Path
    """A file that is there while the service has the claim on the home: before that nothing is woken."""
    host_cpus: float
    """CPUs that Ray reserves for a host whose class declares none."""
    inbox_limit: int
    """Messages that may be pending for one agent."""
    shared_agents: int
    """Limit of agents on a shared host."""
    warm_hosts: int
    most_warm_hosts: int
    """Limit of warm hosts of all classes on a node."""
    most_starting: int | None
    """Limit of starts on a node; ``None`` for its cores, at least two."""
    autoscaler: bool
    """Whether the cluster adds nodes when it is asked for them."""
    lease_ttl_s: float
    silence_s: float
    hang_s: float
    wake_timeout_s: float
