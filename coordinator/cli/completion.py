"""Shell completion of arguments that name agents: their addresses, read from the home."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer  # noqa: TC002  it reads the annotations of this function

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.client.async_client import AsyncPodium

__all__ = ["agent_addresses"]


def agent_addresses(context: typer.Context, incomplete: str) -> list[str]:
    """Return the addresses of agents that begin with what was typed; none if the home cannot be read."""
    try:
        names = _remote(context.params["url"], context.params["api_key"]) if context.params.get("url") else None
        names = _local(context.params["home"]) if names is None else names
    except Exception:  # noqa: BLE001  a shell that completes has no place for errors
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def _local(home: Path) -> list[str]:
    from coordinator.cli.stores import read_journal  # noqa: PLC0415  --help needs none
    from podium.address import label  # noqa: PLC0415
    from podium.agent_record import list_agents  # noqa: PLC0415

    with read_journal(home) as store:
        return [label(session) for session in list_agents(store)]


def _remote(url: str, api_key: str) -> list[str]:
    from coordinator.cli.remote.connection import Gateway, ask  # noqa: PLC0415

    async def read(podium: AsyncPodium) -> list[str]:
        return [found.agent async for found in podium.agents()]

    return ask(Gateway(url, api_key), "", read)
