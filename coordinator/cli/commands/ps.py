"""``podium ps``: the agents of a home, and the state of its service."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import DEFAULT_HOME, ApiKeyOption, DebugOption, HomeOption, JsonOption, UrlOption
from coordinator.cli.service_call import call_service
from coordinator.cli.stores import empty_journal_problem, read_journal, service_alive
from coordinator.cli.views.agents import show_agents
from podium.address import label

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.journal.records import SessionSummary
    from coordinator.fleet.facts import AwakeFacts
    from coordinator.service.client import ServiceClient

__all__ = ["AgentRow", "ps"]


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent, as ``ps`` shows it."""

    agent: str
    status: str
    """``awake`` while a lease on it is in force, else ``asleep``."""
    turn: int
    version: int
    """Its branch's length."""
    last_activity: int
    """The time of its last event, else of its first message; epoch milliseconds."""
    pending: int
    """Messages that wait."""
    parked: int
    """Messages that failed their last attempt."""
    isolation: str | None = None
    """``process`` or ``shared``; ``None`` while it sleeps, or if no service answers."""
    memory: int | None = None
    """Memory of its process, bytes; of a shared process, its share. ``None`` likewise."""


def ps(
    *,
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
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.ps(Gateway(url, api_key), json=json)
        return
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from chronicle.errors import Corrupt  # noqa: PLC0415
    from podium.agent_record import is_agent  # noqa: PLC0415

    now_ms = SystemClock().now_ms()
    with read_journal(home) as store:
        rows = [_row(summary, now_ms) for summary in store.summaries() if is_agent(summary.session)]
        if not rows and (problem := empty_journal_problem(home, store)) is not None:
            raise Corrupt(f"{home}/journal.db is damaged: {problem}; put it back from a backup")
    alive = service_alive(home)
    if alive:
        rows = _with_awake(home, rows)
    if json:
        write_json({"home": str(home), "service": alive, "agents": [asdict(row) for row in rows]})
        return
    if rows:
        show_agents([asdict(row) for row in rows], now_ms)
    else:
        say("no agents yet: `podium run FILE.py:Class` starts one")
    say("the service is up" if alive else "no service is running; sleeping agents need none")


def _row(summary: SessionSummary, now_ms: int) -> AgentRow:
    from coordinator.operations.listing import agent_of_summary  # noqa: PLC0415  slow to import

    found = agent_of_summary(summary, now_ms)
    return AgentRow(
        agent=label(summary.session),
        status=found["status"],
        turn=found["turn"],
        version=found["version"],
        last_activity=found["updated_at"],
        pending=found["pending"],
        parked=found["parked"],
    )


def _with_awake(home: Path, rows: list[AgentRow]) -> list[AgentRow]:
    """Return the rows with what the service knows of those that are awake, if it answers."""
    from coordinator.service.client import ServiceError, ServiceRefused  # noqa: PLC0415  likewise

    awake = [row.agent for row in rows if row.status == "awake"]

    async def ask(client: ServiceClient) -> dict[str, AwakeFacts]:
        return await client.awake(awake)

    try:
        facts = call_service(home, "asking for the agents that are awake", ask, lines=False) if awake else None
    except (ServiceError, ServiceRefused):  # one of an older version, or one that is ending
        return rows
    return [
        replace(row, isolation=known["isolation"], memory=known["memory"])
        if facts is not None and (known := facts.get(row.agent)) is not None
        else row
        for row in rows
    ]
