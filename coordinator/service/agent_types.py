"""The agent types that a service knows: the classes of its registry, and those that messages brought along."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from coordinator.fleet.model import Code
from coordinator.registry.message_checks import MessageChecks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chronicle.canonical import Json
    from coordinator.ray.router import Router
    from coordinator.registry.registry import RegisteredAgent, Registry
    from podium.address import Address

__all__ = ["AgentTypes"]


_REGISTRATION_S: Final = 60.0
"""Timeout of the registration by the client that started the service: it connects at once, and has read its classes."""


class AgentTypes:
    """The known types, and the code that handles the messages of each.

    Args:
        router: the way to the coordinator and to agents, which are told of changes.
        deployed: returns the classes of the home's current deploy, ``None`` without one; called in a thread. They are
            known instead of those that are registered.
        awaits_registration: whether a client is about to register classes: until then, or for a limited time, messages
            of unknown types wait instead of being refused.
    """

    def __init__(
        self, router: Router, deployed: Callable[[], Registry | None], *, awaits_registration: bool = False
    ) -> None:
        self._router = router
        self._deployed = deployed
        self._known = router.known
        self._registered = None if _is_deployed(router.known.registry) else router.known.registry
        self._changing = asyncio.Lock()
        self._follows_edits = False
        self._checks = MessageChecks()
        self._complete = asyncio.Event()
        """Set when no registration is awaited."""
        if not awaits_registration:
            self._complete.set()

    async def register(self, registry: Registry, *, reload: bool, follow_edits: bool | None) -> list[Address]:
        """Replace the registered classes; agents of the types that are known then, with pending messages, are woken.

        Args:
            reload: have awake agents move to the current code and configuration after their running turns.
            follow_edits: have each message to an awake agent of a registered type handled by the current code and
                configuration; otherwise agents move to them when they are activated, or by ``reload``. ``None``: as
                before, at first not.

        Returns:
            the agents that move.
        """
        async with self._changing:
            self._registered = registry
            await self._know()
            if follow_edits is not None:
                self._follows_edits = follow_edits
        self._complete.set()
        return await self._router.reload() if reload else []

    async def read_deploy(self) -> None:
        """Have the classes of the current deploy known, if there is one.

        Raises:
            ChronicleError: it cannot be read.
        """
        async with self._changing:
            if await asyncio.to_thread(self._deployed) is not None:
                await self._know()

    async def redeploy(self) -> list[Address]:
        """Have the classes of the current deploy known, and awake agents move to them after their running turns.

        Returns:
            the agents that move.

        Raises:
            ChronicleError: the deploy cannot be read; nothing changes.
        """
        async with self._changing:
            await self._know()
        return await self._router.reload()

    async def prepare(self, address: Address, agent: RegisteredAgent | None) -> tuple[Code, int | None]:
        """Return the code for a message that is about to be admitted, and the epoch of its agent's lease, if known.

        Args:
            agent: the class that the message brought along, whose current content is to handle it; ``None`` for the
                known class of the address's type.

        Raises:
            UnknownAgentType: no class of the type is known.
        """
        if agent is None:
            code = await self.code_of(address.agent_type)
            if not self._follows_edits:
                return code, self._router.epoch_of(address)
            return code, await self._router.prepare(address, code)
        async with self._changing:
            known = self._known.noted(agent)
            if known is not self._known:
                await self._router.know(known)
                self._known = known
        code = Code.of(agent)
        return code, await self._router.prepare(address, code)

    async def check(
        self, address: Address, agent: RegisteredAgent | None, message: Mapping[str, Any], *, read: bool = False
    ) -> None:
        """Check a message by the schemas of the class that is to handle it; call it after `prepare`.

        Args:
            read: it is for a read-only handler; else it is to be admitted.

        Raises:
            InvalidMessage: it does not fit.
        """
        known = agent or self._known.find(address.agent_type)
        if known is not None:
            await self._checks.check(known, message, read=read)

    async def code_of(self, agent_type: str) -> Code:
        """Return the code of a type, that of a registered class first; wait for a registration that is awaited.

        Raises:
            UnknownAgentType: no class of the type is known.
        """
        if self._known.find(agent_type) is None and not self._complete.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_REGISTRATION_S):
                    await self._complete.wait()
            self._complete.set()
        return Code.of(self._known.get(agent_type))

    async def _know(self) -> None:
        known = self._known.registered(await asyncio.to_thread(self._deployed) or self._registered)
        await self._router.know(known)
        self._known = known

    def types(self) -> list[dict[str, Json]]:
        """Return all known classes as plain values, by type; see `RegisteredAgent.described`."""
        return [self._known.get(agent_type).described for agent_type in self._known.types]

    async def describe(self) -> list[dict[str, Any]]:
        """Return the registered classes as plain values; ``problem`` is why a class cannot be loaded, or ``None``."""
        registry = self._known.registry
        if registry is None:
            return []
        problems = await self._router.problems()
        return [
            {
                "agent_type": agent.agent_type,
                "file": agent.file,
                "class": agent.class_name,
                "bundle": agent.bundle or None,
                "problem": problems.get(agent.agent_type),
            }
            for agent in registry.agents
        ]


def _is_deployed(registry: Registry | None) -> bool:
    """Whether a registry is that of a deploy."""
    return registry is not None and any(agent.bundle for agent in registry.agents)
