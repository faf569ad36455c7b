"""``podium erase``: removing the content of messages, replies, results and artifacts permanently."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.confirmation import confirm
from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import DEFAULT_HOME, AgentArgument, DebugOption, HomeOption, JsonOption
from coordinator.cli.stores import opened_journal

__all__ = ["erase"]


def erase(
    agent: AgentArgument,
    events: Annotated[
        list[str], typer.Argument(metavar="EVENT_ID...", help="As podium log --json shows them, or art_…")
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Erase the content of messages, replies, results and artifacts permanently.

    Their events stay, and the chain verifies. It cannot be undone. Copies that the agent made in its state or its files
    are not erased: see podium fold.
    """
    from podium.address import Address  # noqa: PLC0415  slow to import, and --help needs none
    from podium.artifacts.artifacts import event_id_of  # noqa: PLC0415
    from podium.events import ARTIFACT_ADDED  # noqa: PLC0415
    from podium.history.erase import erase_messages  # noqa: PLC0415

    with opened_journal(home) as store:
        address = Address.of(find_agent(store, agent))
        if not yes:
            confirm(
                f"Erase {len(set(events))} messages of {address} permanently?",
                without_terminal=f"erasing messages of {address} cannot be undone; add --yes to do it",
            )
        erased = erase_messages(store, address, [event_id_of(event) for event in events])
    if json:
        write_json({"agent": str(address), "erased": [event.event_id for event in erased]})
        return
    for event in erased:
        write_line(f"{event.event_id} {event.type} of turn {event.turn} is erased")
    if any(event.payload_ref is not None or event.type == ARTIFACT_ADDED for event in erased):
        say("podium gc frees the blobs that nothing else needs")
