"""Shell completion of arguments that name agents: their addresses, read from the home."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer  # noqa: TC002  it reads the annotations of this function

from coordinator.cli.target import Target

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium

__all__ = ["agent_addresses"]


def agent_addresses(context: typer.Context, incomplete: str) -> list[str]:
    """Return the addresses of agents that begin with what was typed; none if the home cannot be read."""

    async def read(podium: AsyncPodium) -> list[str]:
        return [found.agent async for found in podium.agents(tenant=target.tenants)]

    try:
        given = context.params
        target = Target(given["home"], given.get("url", ""), given.get("api_key", ""), json=False)
        return sorted(name for name in target.ask("", read) if name.startswith(incomplete))
    except Exception:  # noqa: BLE001  a shell that completes has no place for errors
        return []
