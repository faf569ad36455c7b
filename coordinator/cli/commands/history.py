"""``podium history``: the versions of one path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.options import MomentArgument, command
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, collect, say_rest
from coordinator.cli.target import Target, moment_of
from coordinator.cli.views.files import show_versions

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.cursors import Rest

__all__ = ["history"]


@command
def history(
    moment: MomentArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="From the workspace's root.")],
    *,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    target: Target,
) -> None:
    """List the versions of one of an agent's files.

    Only committed versions are shown; `podium cat` prints one.
    """
    from podium.turn.upload import clean_path  # noqa: PLC0415  slow to import, and --help needs none

    wanted, path = bounds(limit, cursor, everything=everything, target=target), clean_path(path)

    async def read(podium: AsyncPodium) -> tuple[list[dict[str, Any]], Rest]:
        at = await moment_of(podium, moment)
        return await collect(
            lambda limit, cursor: podium.pages().file_history(at.agent, path, turn=at.turn, limit=limit, cursor=cursor),
            wanted,
        )

    versions, rest = target.ask(f"reading the history of {path}", read, moment)
    if target.json:
        write_json(versions)
    else:
        show_versions(versions)
    say_rest(rest)
