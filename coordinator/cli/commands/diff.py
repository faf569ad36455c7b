"""``podium diff``: the differences between two moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.options import MomentArgument, command, short_name
from coordinator.cli.target import Target, moment_of
from coordinator.cli.views.files import show_diff

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium

__all__ = ["diff"]


@command
def diff(
    moment: MomentArgument,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[AGENT[@TURN]]",
            help="What to compare it with; the same agent now, by default.",
            callback=short_name,
        ),
    ] = None,
    *,
    target: Target,
) -> None:
    """Show the differences between two moments: in state, files and transcript.

    The two may be turns of one agent, or an agent and its fork. Changes of the state are an RFC 6902 patch, those of
    files a unified diff.
    """

    async def read(podium: AsyncPodium) -> dict[str, Any]:
        before = await moment_of(podium, moment)
        after = await moment_of(podium, other if other is not None else before.agent)
        compared = after.agent if after.agent != before.agent else None
        found = (await podium.diff(before.agent, before.turn, after.turn, other=compared)).as_json()
        found["before"]["agent"], found["after"]["agent"] = before.agent, after.agent
        return found

    found = target.ask(f"comparing {moment}", read, *(each for each in (moment, other) if each is not None))
    if target.json:
        write_json(found)
    else:
        show_diff(found)
