"""The deaths of hosts: what is known of them, and how it is found out from Ray."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import ray
import structlog

from coordinator.fleet.liveness import until_hung
from coordinator.ray.cluster import cause_of
from podium.address import Address

if TYPE_CHECKING:
    from coordinator.fleet.host import Host
    from coordinator.fleet.nodes.nodes import NodeId
    from coordinator.ray.node_pool import NodePool

__all__ = ["known_cause", "named_culprit", "probe_host"]

_SHORT_OF_MEMORY: Final = "running low on memory"
"""Part of Ray's error text for an actor killed by its memory monitor."""
_REASON_S: Final = 1.0
"""Timeout for Ray to give the reason of a death: the agent's next wake waits for it."""
_REASON_POLL_S: Final = 0.05
_NODE_S: Final = 60.0
"""Timeout for the node to answer."""
_NO_MEMORY: Final = "killed by Ray, because the node was running out of memory"

_log = structlog.stdlib.get_logger("coordinator")


async def known_cause(handle: Any) -> str | None:
    """Return why Ray killed an actor; ``None`` if it did not, or does not know of the death in time."""
    return _NO_MEMORY if _SHORT_OF_MEMORY in await _death_of(handle) else None


async def named_culprit(nodes: NodePool, node: NodeId, host_id: str) -> Address | None:
    """Return the agent that is to blame for the end of a host of a node; ``None`` if that is not known."""
    try:
        culprit: str | None = await nodes.ask(node, _NODE_S, "culprit", host_id)
    except Exception as error:  # noqa: BLE001  the agents must get another host in any case
        _log.warning("culprit_not_known", host_id=host_id, error=str(cause_of(error)))
        return None
    return Address.parse(culprit) if culprit is not None else None


async def probe_host(handle: Any, nodes: NodePool, host: Host, hang_s: float, silence_s: float) -> None:
    """Probe the liveness of a host; see `coordinator.fleet.liveness.until_hung`.

    Args:
        handle: of the host's actor.

    Raises:
        HostDied: it did not answer.
        ray.exceptions.RayError: it is dead.
    """

    async def computes() -> bool:
        return bool(await nodes.ask(host.node, _NODE_S, "computes", host.host_id))

    await until_hung(handle.ping.remote(), hang_s, silence_s, computes)


async def _death_of(handle: Any) -> str:
    """Return Ray's reason for the death of an actor; empty if Ray does not know of the death in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REASON_S):
            while True:
                try:
                    await handle.ping.remote()
                except ray.exceptions.ActorUnavailableError:  # its connection broke, and no more is known yet
                    await asyncio.sleep(_REASON_POLL_S)
                except ray.exceptions.RayActorError as error:
                    return str(error)
    return ""
