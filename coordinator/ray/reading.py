"""Calls of read-only handlers, from the service and from the hosts of other agents."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import ray

from coordinator.ray.cluster import cause_of, find_actor
from podium.errors import AgentAsleep, HostDied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from coordinator.fleet.model import Route
    from podium.address import Address
    from podium.turn.reading import Read

__all__ = ["ray_errors", "read_agent"]

_ATTEMPTS: Final = 3
"""Hosts on which a read is tried: the one before may have ended for another reason."""


async def read_agent(
    address: Address, message: Mapping[str, Any], wake: Callable[[Route | None], Awaitable[Route]]
) -> Read:
    """Call a read-only handler of an agent; again if its host has ended in order.

    Not if it has died: the handler may have ended it, and turns that run there with it.

    Args:
        wake: returns the route to the agent, which is woken if it sleeps; another one than a given one that is lost.

    Raises:
        PodiumError: the agent cannot be woken, or the handler failed.
        HostDied: its host died meanwhile.
    """
    lost: Route | None = None
    for left in reversed(range(_ATTEMPTS)):
        route = await wake(lost)
        host = find_actor(route.host_id)
        try:
            if host is None:
                raise AgentAsleep(f"host {route.host_id} is gone")
            with ray_errors():
                read: Read = await host.read.remote(address, message)
                return read
        except AgentAsleep:
            if not left:
                raise
            lost = route
    raise AssertionError("the last attempt has returned or raised")


@contextmanager
def ray_errors() -> Iterator[None]:
    """Raise what Ray knows of a dead actor as `HostDied`, and the error of a call as it is."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise cause_of(error) from error
    except ray.exceptions.RayError as error:
        raise HostDied(str(error)) from error
