"""``podium upgrade``: the formats of a home, and their migrations."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, command
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from coordinator.homes.records import Part

__all__ = ["upgrade"]


@command
def upgrade(
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Upgrade them.")] = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Show the formats of a home's parts, and upgrade those that are older.

    Without --yes nothing is changed. An additive upgrade can be made while older versions run. Another one is refused
    while a service has the home; make a backup before.
    """
    from coordinator.home import Home  # noqa: PLC0415  slow to import, and --help needs none
    from coordinator.upgrading import parts_of, upgrade_home  # noqa: PLC0415

    place = Home(home).open()
    parts = parts_of(place)
    older = [part for part in parts if part.newer is not None]
    if yes and older:
        upgrade_home(place)
    if json:
        write_json({"parts": [asdict(part) for part in parts], "upgraded": bool(yes and older)})
        return
    table(
        ("PART", "FORMAT", "UPGRADE", "WHERE"),
        [(part.name, str(part.format), _upgrade(part), part.place) for part in parts],
    )
    if not older:
        say("all parts have the formats of this podium")
    elif yes:
        say("upgraded")
    else:
        say("nothing was changed; podium upgrade --yes upgrades them")


def _upgrade(part: Part) -> str:
    if part.newer is None:
        return "-"
    return f"to {part.newer}, {'additive' if part.is_additive else 'alone'}"
