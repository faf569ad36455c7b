"""``podium ps``: the agents of a home, and the state of its service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import command
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, collect, say_rest
from coordinator.cli.target import Target
from coordinator.cli.views.agents import show_agents

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ps"]


@command
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
    target: Target,
) -> None:
    """List the agents of a home.

    For each: awake or asleep, its turn and version, its last activity, and how many messages wait or are parked. For
    those that are awake also the isolation and memory of their processes, and the sandbox of their commands.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from podium.address import Address, check_tenant  # noqa: PLC0415

    if tenant is not None:
        check_tenant(tenant)
    place = target.url or str(target.home)
    found, rest = target.ask(
        f"listing the agents of {place}",
        lambda podium: collect(
            lambda limit, cursor: podium.pages().agents(
                agent_type=agent_type, tenant=tenant or target.tenants, awake=awake, limit=limit, cursor=cursor
            ),
            bounds(limit, cursor, everything=everything, target=target),
        ),
    )
    if tenant is not None:
        found = [{**agent, "agent": str(Address.parse(agent["agent"], tenant))} for agent in found]
    if not found and not target.url:
        _check_not_emptied(target.home)
    alive = target.has_service()
    if target.json:
        write_json({"home": place, "service": alive, "agents": found, **rest})
        return
    if found:
        show_agents(found, SystemClock().now_ms())
    elif agent_type is not None or tenant is not None or awake:
        say("no agent is like that")
    else:
        say(f"no agents at {place} yet" if target.url else "no agents yet: `podium run FILE.py:Class` starts one")
    say_rest(rest)
    if not target.url:
        say("the service is up" if alive else "no service is running; sleeping agents need none")


def _check_not_emptied(home: Path) -> None:
    """Check that a journal without agents is not a damaged one.

    Raises:
        Corrupt: it must be.
    """
    from chronicle.errors import Corrupt  # noqa: PLC0415
    from coordinator.cli.stores import empty_journal_problem, read_journal  # noqa: PLC0415

    with read_journal(home) as store:
        if (problem := empty_journal_problem(home, store)) is not None:
            raise Corrupt(f"{home}/journal.db is damaged: {problem}; put it back from a backup")
