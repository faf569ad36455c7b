"""``podium ps``: the agents of a home, and the state of its service."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import DEFAULT_HOME, ApiKeyOption, DebugOption, HomeOption, JsonOption, UrlOption
from coordinator.cli.stores import empty_journal_problem, read_journal, service_alive
from coordinator.cli.views import show_agents
from podium.address import label

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Session

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


def ps(
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """List the agents of a home.

    For each: awake or asleep, its turn and version, its last activity, and how many messages wait or are parked.
    """
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.ps(Gateway(url, api_key), json=json)
        return
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from chronicle.errors import Corrupt  # noqa: PLC0415
    from podium.agent_record import list_agents  # noqa: PLC0415

    now_ms = SystemClock().now_ms()
    with read_journal(home) as store:
        rows = [_row(store, session, now_ms) for session in list_agents(store)]
        if not rows and (problem := empty_journal_problem(home, store)) is not None:
            raise Corrupt(f"{home}/journal.db is damaged: {problem}; put it back from a backup")
    alive = service_alive(home)
    if json:
        write_json({"home": str(home), "service": alive, "agents": [asdict(row) for row in rows]})
        return
    if rows:
        show_agents([asdict(row) for row in rows], now_ms)
    else:
        say("no agents yet: `podium run FILE.py:Class` starts one")
    say("the service is up" if alive else "no service is running; sleeping agents need none")


def _row(store: JournalStore, session: Session, now_ms: int) -> AgentRow:
    from coordinator.operations.listing import agent_of_session  # noqa: PLC0415  slow to import

    found = agent_of_session(store, session, now_ms)
    return AgentRow(
        agent=label(session),
        status=found["status"],
        turn=found["turn"],
        version=found["version"],
        last_activity=found["updated_at"],
        pending=found["pending"],
        parked=found["parked"],
    )
