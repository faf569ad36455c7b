"""``podium erase``: removing the content of messages, replies, results and artifacts permanently."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.confirmation import confirm
from chronicle.cli_kit.terminal import write_json
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
from coordinator.cli.stores import opened_journal
from coordinator.cli.views.archives import show_erased

__all__ = ["erase"]


def erase(
    agent: AgentArgument,
    events: Annotated[
        list[str], typer.Argument(metavar="EVENT_ID...", help="As podium log --json shows them, or art_…")
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Erase the content of messages, replies, results and artifacts permanently.

    Their events stay, and the chain verifies. It cannot be undone. Copies that the agent made in its state or its files
    are not erased: see podium fold.
    """
    if url:
        from coordinator.cli.remote import changing as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.erase(Gateway(url, api_key), agent, events, yes=yes, json=json)
        return
    from coordinator.operations.dropping import erase as erase_events  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415  slow to import, and --help needs none

    with opened_journal(home) as store:
        address = Address.of(find_agent(store, agent))
        if not yes:
            confirm(
                f"Erase {len(set(events))} messages of {address} permanently?",
                without_terminal=f"erasing messages of {address} cannot be undone; add --yes to do it",
            )
        erased = erase_events(store, address, events)
    if json:
        write_json({"agent": str(address), "erased": [event.event_id for event in erased.erased]})
    else:
        show_erased([event.as_json() for event in erased.erased])
