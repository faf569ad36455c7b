"""``podium rewind``: returning an agent to an earlier turn."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.options import AgentArgument, command
from coordinator.cli.target import Target
from coordinator.cli.views.events import parts_text
from coordinator.cli.views.files import show_file_changes, show_patch

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.objects import Difference

__all__ = ["rewind"]

_MAX_SHOWN: Final = 20
"""Limit of state changes shown as text: a rewind of a long list has one for each of its items."""


class _Restored(StrEnum):
    """A part to restore; Typer reads lists of enumerations, and none of literals."""

    STATE = "state"
    FILES = "files"
    TRANSCRIPT = "transcript"


@command
def rewind(
    agent: AgentArgument,
    turn: Annotated[int, typer.Argument(metavar="TURN", min=0, help="The turn to return to; 0 is its creation.")],
    *,
    only: Annotated[
        list[_Restored] | None,
        typer.Option("--only", help="Rewind only the state, the files or the transcript; can be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    target: Target,
) -> None:
    """Return an agent to an earlier turn.

    No history is lost: a rewind is a new turn at the end of the history, and a rewind to the turn before it undoes it.
    An agent that is awake is put to sleep for it, after its current turn.
    """
    parts = [part for part in _Restored if not only or part in only]

    async def act(podium: AsyncPodium) -> tuple[dict[str, Any], Difference]:
        if dry_run:
            now = await podium.agent(agent)
            planned = {"agent": agent, "from": now.turn, "to": turn, "only": parts, "turn": None}
            return planned, await podium.diff(agent, now.turn, turn)
        done = (await podium.rewind(agent, turn, only=parts)).as_json()
        return {**done, "agent": agent}, await podium.diff(agent, done["from"], done["turn"] or done["from"])

    done, changed = target.ask(f"waiting for {agent} to end its turn", act, agent, writes=not dry_run, waits=True)
    state = list(changed.state) if _Restored.STATE in parts else []
    files = list(changed.files) if _Restored.FILES in parts else []
    if target.json:
        write_json({**done, "state": state, "files": files})
        return
    if state:
        write_line("state")
        show_patch(state, _MAX_SHOWN)
    if files:
        write_line("files")
        show_file_changes(files)
    if dry_run:
        say("nothing was changed (--dry-run)")
    elif done["turn"] is None:
        say(f"{agent} is already as after turn {turn}; nothing was changed")
    else:
        say(
            f"{agent} is at turn {done['turn']}, {parts_text(parts)} as after turn {turn}; "
            f"podium rewind {agent} {done['from']} undoes it"
        )
