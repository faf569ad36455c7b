"""``podium migrate``: moving a home into PostgreSQL and an object store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from chronicle.cli_kit.progress import Progress
from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.options import DEFAULT_HOME, BlobsUrlOption, HomeOption, JsonOption, command, urls_of

__all__ = ["migrate"]


@command
def migrate(
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="Where the journal is to be: postgresql://USER@HOST/DATABASE.")
    ],
    blobs_url: BlobsUrlOption = "",
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Move a home into PostgreSQL and an object store, and verify it there.

    Nothing of the home may run. `PODIUM_BLOBS_URL` names the object store, unless the blobs are in one already. A move
    that was broken off goes on when it is called again. `podium backup` is the way back.
    """
    from chronicle.journal.places import without_password  # noqa: PLC0415  these are slow to import
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.migration import move_home  # noqa: PLC0415

    place, there = Home(home).open(), without_password(to)
    blobs_url, _ = urls_of(None, blobs_url, to)
    with Progress(lines=False) as progress:
        moved = move_home(place, to, blobs_url, progress.show)
    if json:
        write_json({"journal_url": there, "blobs_url": place.blobs_url, **asdict(moved)})
        return
    write_line(f"{there}: {moved.agents} agents, {moved.events} events and {moved.blobs} blobs, verified")
    say(f"what was in the directory is in {place.path / 'moved'}; remove it when you do not need it any more")
