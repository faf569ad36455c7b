"""The port to a home's service: what operations need of it. A `coordinator.service.link.ServiceLink` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from coordinator.service.client import ServiceClient

__all__ = ["FleetLink"]


class FleetLink(Protocol):
    """A connection to the service that is made again after a loss."""

    async def client(self) -> ServiceClient:
        """Return a live client.

        Raises:
            ServiceError: no service runs, or it cannot be reached.
        """
        ...
