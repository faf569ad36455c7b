"""``podium ps``: the agents of a home, and the state of its service."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import DEFAULT_HOME, ApiKeyOption, DebugOption, HomeOption, JsonOption, UrlOption
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, say_rest
from coordinator.cli.service_call import call_service
from coordinator.cli.stores import empty_journal_problem, read_journal, service_alive
from coordinator.cli.views.agents import agent_row, show_agents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coordinator.cli.paging import Bounds
    from coordinator.fleet.facts import AwakeFacts
    from coordinator.operations.cursors import Rest
    from coordinator.operations.objects import Agent
    from coordinator.service.client import ServiceClient

__all__ = ["ps"]


def ps(
    *,
    agent_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only agents of this type.")] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="TENANT", help="Only agents of this tenant; with --url by default the key's."),
    ] = None,
    awake: Annotated[bool, typer.Option("--awake", help="Only agents that are awake.")] = False,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """List the agents of a home.

    For each: awake or asleep, its turn and version, its last activity, and how many messages wait or are parked. For
    those that are awake also the isolation and memory of their processes.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none

    found: Sequence[Mapping[str, Any]]
    now_ms, wanted = SystemClock().now_ms(), bounds(limit, cursor, everything=everything)
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        place, alive = url, True
        found, rest = remote.agents(Gateway(url, api_key), agent_type, tenant, wanted, awake=awake)
    else:
        place = str(home)
        found, rest = _listed(home, agent_type, tenant, wanted, now_ms, awake=awake)
        alive = service_alive(home)
    rows = [agent_row(agent) for agent in found]
    if json:
        write_json({"home": place, "service": alive, "agents": rows, **rest})
        return
    if rows:
        show_agents(rows, now_ms)
    elif agent_type is not None or tenant is not None or awake:
        say("no agent is like that")
    else:
        say(f"no agents at {url} yet" if url else "no agents yet: `podium run FILE.py:Class` starts one")
    say_rest(rest)
    if not url:
        say("the service is up" if alive else "no service is running; sleeping agents need none")


def _listed(
    home: Path, agent_type: str | None, tenant: str | None, wanted: Bounds, now_ms: int, *, awake: bool
) -> tuple[list[dict[str, Any]], Rest]:
    """Return agents of a home on this machine with their whole addresses, and what follows them."""
    from chronicle.errors import Corrupt  # noqa: PLC0415
    from coordinator.operations.listing import AgentFilter, agent_of_summary, agent_page  # noqa: PLC0415
    from podium.address import check_tenant, label  # noqa: PLC0415

    if tenant is not None:
        check_tenant(tenant)
    with read_journal(home) as store:
        page, rest = agent_page(store, AgentFilter(tenant, agent_type, awake), wanted.limit, wanted.cursor, now_ms)
        if not page and (problem := empty_journal_problem(home, store)) is not None:
            raise Corrupt(f"{home}/journal.db is damaged: {problem}; put it back from a backup")
    agents = [replace(agent_of_summary(summary, now_ms), agent=label(summary.session)) for summary in page]
    return [agent.as_json() for agent in _with_awake(home, agents)], rest


def _with_awake(home: Path, agents: Sequence[Agent]) -> Sequence[Agent]:
    """Return agents with what the service knows of those that are awake, if it answers."""
    awake = [agent.agent for agent in agents if agent.status == "awake"]
    if not awake or not service_alive(home):
        return agents
    from coordinator.operations.listing import with_awake  # noqa: PLC0415
    from coordinator.service.client import ServiceError, ServiceRefused  # noqa: PLC0415  slow to import

    async def ask(client: ServiceClient) -> dict[str, AwakeFacts]:
        return await client.awake(awake)

    try:
        facts = call_service(home, "asking for the agents that are awake", ask, lines=False)
    except (ServiceError, ServiceRefused):  # one of an older version, or one that is ending
        return agents
    return [with_awake(agent, (facts or {}).get(agent.agent)) for agent in agents]
