"""The deaths of hosts: what is known of them, and how it is found out from Ray."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import ray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.fleet.model import Loaded, Placement
    from podium.address import Address

__all__ = ["AgentsLost", "known_cause"]

_SHORT_OF_MEMORY: Final = "running low on memory"
"""Part of Ray's error text for an actor killed by its memory monitor."""
_REASON_S: Final = 1.0
"""Timeout for Ray to give the reason of a death: the agent's next wake waits for it."""
_REASON_POLL_S: Final = 0.05
_NO_MEMORY: Final = "killed by Ray, because the node was running out of memory"


@dataclass(frozen=True, slots=True)
class AgentsLost:
    """Agents whose host has ended, or which have left their shared host."""

    agents: Sequence[Placement]
    how: str | None
    """How the host ended by itself, or why the activation failed; ``None`` if neither, or if it is not known."""
    shared: Loaded | None = None
    """The code of a shared host that has ended; `HostPool` has had what is known of it settled."""
    culprit: Address | None = None
    """The agent of a shared host whose code made the host end itself."""
    died: bool = False
    """Whether the host died, or did not answer, and so left what it was about to do."""


async def known_cause(handle: Any) -> str | None:
    """Return why Ray killed an actor; ``None`` if it did not, or does not know of the death in time."""
    return _NO_MEMORY if _SHORT_OF_MEMORY in await _death_of(handle) else None


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
