"""``podium reminders``: the reminders of an agent, and cancelling one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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
from coordinator.cli.stores import opened_journal, read_journal
from coordinator.cli.views.messages import show_reminders
from podium.address import label

if TYPE_CHECKING:
    from podium.address import Address

__all__ = ["reminders"]


def reminders(
    agent: AgentArgument,
    *,
    cancel: Annotated[
        str | None, typer.Option("--cancel", metavar="NAME", help="Cancel this reminder instead of listing them.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """List the reminders that an agent has set, or cancel one.

    A message that a cancelled reminder has sent already stays in the inbox. An agent sets reminders with ctx.remind.
    """
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.reminders(Gateway(url, api_key), agent, cancel, json=json)
        return
    from coordinator.operations import reminders as operations  # noqa: PLC0415  slow to import
    from podium.address import Address  # noqa: PLC0415

    if cancel is not None:
        with opened_journal(home) as store:
            session = find_agent(store, agent)
            operations.cancel(store, Address.of(session), cancel)
        _show_cancelled(Address.of(session), cancel, json=json)
        return
    with read_journal(home) as store:
        session = find_agent(store, agent)
        found = [operations.reminder_object(each) for each in store.reminders(session.session_id)]
    if json:
        write_json({"agent": label(session), "reminders": found})
    else:
        show_reminders(label(session), found)


def _show_cancelled(address: Address, name: str, *, json: bool) -> None:
    if json:
        write_json({"agent": str(address), "name": name})
    else:
        write_line(f"{name} is cancelled")
