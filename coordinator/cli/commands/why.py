"""``podium why`` and ``podium nodes``: what an agent waits for, and where agents run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.lookup import find_address
from coordinator.cli.options import (
    DEFAULT_HOME,
    AgentArgument,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    UrlOption,
)
from coordinator.cli.service_call import call_service
from coordinator.cli.stores import opened_blobs, read_journal
from coordinator.cli.views.agents import show_nodes, show_why

if TYPE_CHECKING:
    from coordinator.fleet.facts import AgentFacts, NodeFacts
    from coordinator.service.client import ServiceClient

__all__ = ["nodes", "why"]


def why(
    agent: AgentArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Show what an agent waits for.

    Also its host, its lease, its inbox, its last error and the death of its last process. It changes nothing.
    """
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.why(Gateway(url, api_key), agent, json=json)
        return
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from coordinator.operations.explaining import why_object  # noqa: PLC0415

    async def ask(client: ServiceClient) -> AgentFacts:
        return await client.facts(name)

    with read_journal(home) as store, opened_blobs(home) as blobs:
        address = find_address(store, agent)
        name = str(address)
        facts = call_service(home, f"asking for {name}", ask)
        now_ms = SystemClock().now_ms()
        found = why_object(store, blobs, address, facts, now_ms)
    if json:
        write_json({**found.as_json(), "agent": name})
    else:
        show_why({**found.as_json(), "agent": name}, now_ms)


def nodes(
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """List the nodes that run agents, with their hosts and their memory."""
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.nodes(Gateway(url, api_key), json=json)
        return

    async def ask(client: ServiceClient) -> list[NodeFacts]:
        return await client.nodes()

    found = call_service(home, "asking for the nodes", ask)
    if json:
        write_json({"service": found is not None, "nodes": found or []})
    else:
        show_nodes(found)
