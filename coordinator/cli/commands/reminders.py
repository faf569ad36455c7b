"""``podium reminders``: the reminders of an agent, and cancelling one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import write_json, write_line
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import (
    DEFAULT_HOME,
    AgentArgument,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    UrlOption,
)
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, rest_in, say_rest
from coordinator.cli.stores import opened_journal, read_journal
from coordinator.cli.views.messages import show_reminders
from podium.address import label

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.cli.paging import Bounds
    from coordinator.operations.cursors import Rest

__all__ = ["reminders"]


def reminders(
    agent: AgentArgument,
    *,
    cancel: Annotated[
        str | None, typer.Option("--cancel", metavar="NAME", help="Cancel this reminder instead of listing them.")
    ] = None,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """List the reminders that an agent has set, or cancel one.

    A message that a cancelled reminder has sent already stays in the inbox. An agent sets reminders with ctx.remind.
    """
    if cancel is not None:
        _cancel(home, url, api_key, agent, cancel, json=json)
        return
    wanted = bounds(limit, cursor, everything=everything)
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        found, rest = remote.reminders(Gateway(url, api_key), agent, wanted)
    else:
        agent, found, rest = _listed(home, agent, wanted)
    if json:
        write_json({"agent": agent, "reminders": found, **rest})
        return
    show_reminders(agent, found)
    say_rest(rest)


def _listed(home: Path, name: str, wanted: Bounds) -> tuple[str, list[dict[str, Any]], Rest]:
    from coordinator.operations.reminders import reminder_page  # noqa: PLC0415  slow to import
    from podium.address import Address  # noqa: PLC0415

    with read_journal(home) as store:
        session = find_agent(store, name)
        page = reminder_page(store, Address.of(session), wanted.limit, wanted.cursor)
    return label(session), [reminder.as_json() for reminder in page.items], rest_in(page)


def _cancel(home: Path, url: str, api_key: str, agent: str, name: str, *, json: bool) -> None:
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.cancel_reminder(Gateway(url, api_key), agent, name)
    else:
        from coordinator.operations import reminders as operations  # noqa: PLC0415  slow to import
        from podium.address import Address  # noqa: PLC0415

        with opened_journal(home) as store:
            session = find_agent(store, agent)
            operations.cancel(store, Address.of(session), name)
        agent = label(session)
    if json:
        write_json({"agent": agent, "name": name})
    else:
        write_line(f"{name} is cancelled")
