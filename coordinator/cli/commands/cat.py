"""``podium cat``: the content of a file, now or at an earlier version."""

from __future__ import annotations

import base64
import sys
from contextlib import aclosing
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.options import MomentArgument, command
from coordinator.cli.target import Moment, Target, moment_of
from coordinator.cli.views.files import show_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.client.async_client import AsyncPodium
    from coordinator.client.files import AsyncFiles

__all__ = ["cat"]


@command
def cat(
    moment: MomentArgument,
    path: Annotated[
        str, typer.Argument(metavar="PATH[@ITERATION]", help="From the workspace's root; report.md@2 is its version 2.")
    ],
    *,
    iteration: Annotated[
        int | None, typer.Option("--iteration", metavar="N", min=1, help="The same as PATH@N.")
    ] = None,
    target: Target,
) -> None:
    """Print one of an agent's files, or a version of it.

    The bytes are printed unchanged; on a terminal without control characters.
    """
    from podium.turn.upload import clean_path  # noqa: PLC0415  slow to import, and --help needs none

    path = clean_path(path)
    whole = target.json or sys.stdout.isatty()
    data = bytearray()

    async def read(podium: AsyncPodium) -> dict[str, Any] | None:
        at = await moment_of(podium, moment)
        files = podium.files(at.agent)
        name, number = await _read(files, at, path, iteration, data.extend if whole else sys.stdout.buffer.write)
        if not target.json:
            return None
        versions = takewhile(lambda each: at.turn is None or each.turn <= at.turn, await files.history(name))
        *_, version = (each for each in versions if number in (None, each.iteration))
        about = {"iteration": version.iteration, "size": version.size, "hash": version.hash}
        return {"agent": at.agent, "path": name, **about}

    sys.stdout.flush()
    found = target.ask(f"reading {path}", read, moment)
    if found is not None:
        write_json({**found, **_encoded(data)})
    elif whole:
        show_text(bytes(data))
    sys.stdout.flush()


async def _read(
    files: AsyncFiles, at: Moment, path: str, iteration: int | None, write: Callable[[bytes], object]
) -> tuple[str, int | None]:
    """Read what an argument names. A path that ends in ``@`` and a number itself takes precedence.

    Returns:
        its path and iteration; ``None`` for the last one.
    """
    from coordinator.client.errors import ResourceNotFound  # noqa: PLC0415

    name, _, digits = path.rpartition("@")
    may_name_version = iteration is None and bool(name) and digits.isascii() and digits.isdecimal()
    try:
        async with aclosing(files.chunks(path, turn=at.turn, iteration=iteration)) as chunks:
            async for chunk in chunks:
                write(chunk)
    except ResourceNotFound:
        if not may_name_version:
            raise
        return await _read(files, at, name, int(digits), write)
    return path, iteration


def _encoded(data: bytes | bytearray) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "content": data.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "content": base64.b64encode(data).decode()}
