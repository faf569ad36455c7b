"""Messages to an agent through a client, and their replies: ``podium send`` and ``podium chat``."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.chat import Chat
from coordinator.cli.line_input import Prompt, chosen_input
from coordinator.service.client import AgentRef
from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from coordinator.cli.exits import ExitCode
    from coordinator.client.async_client import AsyncPodium
    from podium.turn.busy import BusyPolicy

__all__ = ["admit", "converse", "send"]


class _ClientSender:
    """A client as a conversation needs it."""

    def __init__(self, podium: AsyncPodium) -> None:
        self._podium = podium

    async def send(
        self, agent: AgentRef, key: str, message: dict[str, Any], *, when_busy: BusyPolicy
    ) -> AsyncIterator[dict[str, Any]]:
        """Admit a message and yield its frames."""
        name = str(Address(agent.agent_type, key))
        async with (
            await self._podium.stream(name, message, when_busy=when_busy) as run,
            aclosing(run.events()) as frames,
        ):
            async for frame in frames:
                yield frame

    async def cancel(self, agent: str, message_id: str) -> None:
        """Cancel a message."""
        await self._podium.cancel(agent, message_id)


async def admit(
    podium: AsyncPodium, agent: str, message: Mapping[str, Any], key: str | None, when_busy: BusyPolicy, *, json: bool
) -> None:
    """Send a message and show its receipt."""
    receipt = await podium.send(agent, message, idempotency_key=key, when_busy=when_busy)
    if json:
        write_json(receipt.as_json())
    else:
        write_line(receipt.message_id)
        say(f"{receipt.before} before it in the inbox of {receipt.agent}")


async def send(
    podium: AsyncPodium, agent: str, message: dict[str, Any], when_busy: BusyPolicy, *, json: bool
) -> ExitCode:
    """Send a message and show its frames."""
    return await _chat(podium, agent, when_busy, json=json).send_message(message)


async def converse(podium: AsyncPodium, agent: str, when_busy: BusyPolicy, *, json: bool) -> ExitCode:
    """Send each line of the input as a message."""
    lines = chosen_input()
    if isinstance(lines, Prompt):
        say("Ctrl-C cancels a reply, Ctrl-D exits.")
    return await _chat(podium, agent, when_busy, json=json).converse(lines)


def _chat(podium: AsyncPodium, agent: str, when_busy: BusyPolicy, *, json: bool) -> Chat:
    address = Address.parse(agent)
    return Chat(
        _ClientSender(podium), AgentRef("", "", address.agent_type), address.key, json=json, when_busy=when_busy
    )
