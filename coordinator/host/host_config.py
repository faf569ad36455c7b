"""The configuration of a host's process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from coordinator.store.links import StoreLink

__all__ = ["HostConfig"]


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The configuration of a host, fixed for its life."""

    host_id: str
    home: str
    """The directory of the home."""
    journal: str
    """Path of the journal's database; empty with ``store``."""
    blobs_url: str
    """As of `chronicle.blobs.opening.open_blobs`."""
    layers: str
    """The node's directory of workspace layers."""
    home_id: str
    home_identity: str
    """`coordinator.home.Home.identity`."""
    workspaces: str
    """Absolute directory of agents' workspace paths; see `coordinator.host.node.workspace_paths`."""
    path_locks: str
    """The machine's directory of lock files of workspace paths."""
    link: str
    """Symlink to the agent's workspace path, dangling before the activation; ``AGENT_WORKSPACE`` until then."""
    zygote_socket: str
    presentation: Literal["fuse", "dir"]
    logs: str
    """Directory of the agents' logs."""
    inbox_limit: int
    """Messages that may be pending for one agent."""
    lease_ttl_s: float
    block_limit_s: float
    """Seconds for which code may block the event loop of a shared host; then the process is ended."""
    shared_host_bytes: int
    """Memory above which a shared host takes no more agents, and is replaced."""
    last_words: str
    """Path of a file that this process writes before it ends itself."""
    deliveries: str
    """Path of the Unix socket for deliveries; see `coordinator.host.delivery`."""
    report_interval_s: float
    """The shortest time between two reports of measurements; 0: nothing is measured."""
    models: str = ""
    """Path of the model gateway's socket; empty: none."""
    bundles: str = ""
    """The node's directory of bundles of agents' code; see `podium.code.unpacking`."""
    group: int | None = None
    """The group that may connect to the socket for deliveries; ``None``: this user alone."""
    store: StoreLink | None = None
    """The store process of the node, if the host is to open no journal itself."""
