"""``podium history``: the versions of one path."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.terminal import write_json
from chronicle.cli_kit.times import iso
from coordinator.cli.files import opened_files
from coordinator.cli.options import DEFAULT_HOME, DebugOption, HomeOption, JsonOption, MomentArgument
from coordinator.cli.terminal import table

__all__ = ["history"]


def history(
    moment: MomentArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="From the workspace's root.")],
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """List all versions of one of an agent's files.

    Only committed versions are shown; `podium cat` prints one.
    """
    from coordinator.operations.files import version_object  # noqa: PLC0415  slow to import, and --help needs none
    from podium.turn.upload import clean_path  # noqa: PLC0415

    path = clean_path(path)
    with opened_files(home, moment) as files:
        records = files.history(path)
    if json:
        write_json([version_object(record) for record in records])
        return
    table(
        ("ITERATION", "TIME", "TURN", "OP", "SIZE", "HASH"),
        [
            (
                str(record.number),
                iso(record.timestamp_ms),
                str(record.turn),
                record.op,
                str(record.size),
                version_object(record)["hash"][:16],
            )
            for record in records
        ],
    )
