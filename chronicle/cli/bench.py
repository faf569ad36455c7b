"""``chronicle bench``: the cost of a mount on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from chronicle.cli.options import JsonOption, parse_directory
from chronicle.cli.output import say, write, write_json

__all__ = ["bench"]


def bench(
    *,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            parser=parse_directory,
            help="On the disk to measure; default: the temporary directory.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Number of rounds; the median counts.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Measure a mount against the plain disk.

    It takes some seconds; everything is removed afterwards.
    """
    from chronicle.bench import measure  # noqa: PLC0415 - the help needs none of it

    rows = measure(directory if directory is not None else Path(tempfile.gettempdir()), rounds, say)
    if as_json:
        write_json(
            [{"what": row.what, "disk_us": row.disk_us, "mount_us": row.mount_us, "ratio": row.ratio} for row in rows]
        )
        return
    write(f"{'':<32} {'disk':>12} {'mount':>12} {'times':>7}")
    for row in rows:
        write(f"{row.what:<32} {row.disk_us:>9.1f} µs {row.mount_us:>9.1f} µs {row.ratio:>6.1f}×")
