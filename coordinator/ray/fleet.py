"""The fleet as its users see it: known code, routes to agents, messages delivered.

All Ray calls of the edge are here.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Literal

import ray

from chronicle.fuse import available
from coordinator.ray.cluster import COORDINATOR_NAME, NAMESPACE, cause_of, connect, disconnect, find_actor
from coordinator.ray.coordinator import CoordinatorActor, CoordinatorConfig, Route
from coordinator.ray.node_manager import NodeConfig, NodeManagerActor
from podium.errors import AgentAsleep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from chronicle.ids import MessageId
    from coordinator.config import Settings
    from coordinator.home import Home
    from coordinator.model import Code
    from podium.address import Address
    from podium.stream import Frame

__all__ = ["Fleet"]

_EMBEDDED_NODE: Final = "local"
_NODE_MANAGER: Final = f"node-manager-{_EMBEDDED_NODE}"


class Fleet:
    """The actors of one home.

    Args:
        home: where they keep everything.
        settings: of this process.
    """

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._coordinator: Any = None
        self._node: Any = None
        self._routes: dict[Address, Route] = {}
        self.notice: str | None = None
        """What clients should be told once: why workspaces are plain directories here, if they are."""

    async def start(self, on_stage: Callable[[str], None]) -> None:
        """Start or join Ray, and start the coordinator and this node's manager.

        Args:
            on_stage: told in a few words what is being waited for.

        Raises:
            Exception: Ray did not start.
        """
        on_stage("starting Ray")
        await asyncio.to_thread(connect, self._home.run_dir)
        on_stage("starting the coordinator")
        settings, home = self._settings, self._home
        journal = home.path / "journal.db"
        self._node = NodeManagerActor.options(  # type: ignore[attr-defined]
            name=_NODE_MANAGER, namespace=NAMESPACE, lifetime="detached", num_cpus=0
        ).remote(
            NodeConfig(
                journal=str(journal),
                blobs_url=home.blobs_url,
                directory=str(home.node(_EMBEDDED_NODE)),
                run_dir=str(home.run_dir),
                logs=str(home.logs),
                presentation=self._presentation(),
                host_cpus=settings.host_cpus,
                lease_ttl_s=settings.lease_ttl_s,
                owner_pid=os.getpid(),
            )
        )
        self._coordinator = CoordinatorActor.options(  # type: ignore[attr-defined]
            name=COORDINATOR_NAME, namespace=NAMESPACE, lifetime="detached", num_cpus=0
        ).remote(
            CoordinatorConfig(
                journal=journal,
                logs=home.logs,
                node_manager=_NODE_MANAGER,
                warm_hosts=settings.warm_hosts,
                lease_ttl_s=settings.lease_ttl_s,
                wake_timeout_s=settings.wake_timeout_s,
                stop_timeout_s=settings.stop_timeout_s,
            )
        )
        async with asyncio.timeout(settings.start_timeout_s):
            await self._node.ready.remote()

    async def register(self, code: Code) -> None:
        """Make an agent type's code known.

        Raises:
            TimeoutError: the coordinator does not answer.
        """
        async with asyncio.timeout(self._settings.wake_timeout_s):
            await self._coordinator.register.remote(code)

    async def deliver(
        self, address: Address, code: Code, message_id: MessageId, cancelled: Callable[[], bool]
    ) -> AsyncIterator[Frame]:
        """Yield the frames of an admitted message, waking its agent, again if its host is lost on the way.

        Args:
            cancelled: whether the sender took the message back meanwhile.

        Raises:
            PodiumError: the agent cannot be woken; the message stays in its inbox.
        """
        lost: Route | None = None
        while True:
            route = self._routes.get(address)
            if route is None:
                route = await self._wake(address, code, lost)
                self._routes[address] = route
                yield {"type": "agent_start", "message_id": message_id, "agent": str(address), "turn": route.turn}
            try:
                async for frame in self._stream(route, message_id, cancelled()):
                    yield frame
            except AgentAsleep:
                lost = route
            except ray.exceptions.RayTaskError as error:
                raise cause_of(error) from error
            except ray.exceptions.RayError:
                lost = route
            else:
                return
            if self._routes.get(address) == route:
                del self._routes[address]

    async def cancel(self, address: Address, message_id: MessageId) -> None:
        """Take a message back where it is being handled; `deliver` does so where it is not.

        Raises:
            TimeoutError: the fleet does not answer.
        """
        route = self._routes.get(address)
        host = find_actor(route.host_id) if route else None
        async with asyncio.timeout(self._settings.wake_timeout_s):
            # First, should the host be ended because the agent's code would not stop.
            await self._coordinator.take_back.remote(address, message_id)
            if host is not None:
                try:
                    await host.cancel.remote(message_id)
                except (AgentAsleep, ray.exceptions.RayError):
                    return  # its host is gone or going: the message will be delivered again, cancelled

    async def running(self) -> list[dict[str, Any]]:
        """Return the hosts there are, as plain values."""
        async with asyncio.timeout(self._settings.wake_timeout_s):
            hosts: list[dict[str, Any]] = await self._coordinator.running.remote()
        return hosts

    async def stop(self) -> None:
        """End all agents in order and leave Ray."""
        if self._coordinator is not None:
            try:
                async with asyncio.timeout(self._settings.stop_timeout_s + 10):
                    await self._coordinator.stop.remote()
                    await self._node.stop.remote()
            except (TimeoutError, ray.exceptions.RayError) as error:
                print(f"agents did not end in order: {error}", file=sys.stderr)  # noqa: T201  the service's log
        await asyncio.to_thread(disconnect)

    async def _wake(self, address: Address, code: Code, lost: Route | None) -> Route:
        try:
            route: Route = await self._coordinator.wake.remote(address, code, lost)
        except ray.exceptions.RayTaskError as error:
            raise cause_of(error) from error
        return route

    async def _stream(self, route: Route, message_id: MessageId, cancelled: bool) -> AsyncIterator[Frame]:
        host = find_actor(route.host_id)
        if host is None:
            raise AgentAsleep(f"host {route.host_id} is gone")
        async for reference in host.deliver.options(num_returns="streaming").remote(message_id, cancelled):
            for frame in await reference:
                yield frame

    def _presentation(self) -> Literal["fuse", "dir"]:
        """Return how workspaces are presented here, and keep the reason when it is not as one would like."""
        if self._settings.presentation == "dir":
            return "dir"
        self.notice = available()
        if self.notice is not None and self._settings.presentation == "fuse":
            raise RuntimeError(self.notice)
        return "fuse" if self.notice is None else "dir"
