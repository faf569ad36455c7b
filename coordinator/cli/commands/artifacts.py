"""``podium artifacts`` and ``podium artifact``: the artifacts of an agent, and the content of one."""

from __future__ import annotations

import base64
import codecs
import shutil
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from chronicle.cli_kit.terminal import say, shown, write, write_json
from coordinator.cli.options import MomentArgument, command
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, collect, say_rest
from coordinator.cli.target import Target, moment_of
from coordinator.cli.views.files import show_artifacts

if TYPE_CHECKING:
    from typing import BinaryIO

    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.cursors import Rest

__all__ = ["artifact", "artifacts"]

_PIECE_BYTES: Final = 1024 * 1024
_IN_MEMORY_BYTES: Final = 16 * 1024 * 1024


@command
def artifacts(
    moment: MomentArgument,
    *,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    target: Target,
) -> None:
    """List the artifacts of an agent, oldest first.

    `podium artifact ID` prints the content.
    """
    wanted = bounds(limit, cursor, everything=everything, target=target)

    async def read(podium: AsyncPodium) -> tuple[str, list[dict[str, Any]], Rest]:
        at = await moment_of(podium, moment)
        found, rest = await collect(
            lambda limit, cursor: podium.pages().artifacts(at.agent, turn=at.turn, limit=limit, cursor=cursor),
            wanted,
        )
        return at.agent, found, rest

    agent, found, rest = target.ask(f"reading the artifacts of {moment}", read, moment)
    if target.json:
        write_json(found)
    elif found:
        show_artifacts(found)
    else:
        say(f"{agent} has no artifacts")
    say_rest(rest)


@command
def artifact(
    artifact_id: Annotated[str, typer.Argument(metavar="ID", help="Such as art_01HF7YAT00S9NX0Q1E5VWJ2B8M.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write it to a new file; into a directory under its own name."
        ),
    ] = None,
    target: Target,
) -> None:
    """Print the content of an artifact, or write it to a file.

    The bytes are printed unchanged. On a terminal, text is shown without control characters, and other content is
    refused.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as received:
        content = cast("BinaryIO", received)

        async def read(podium: AsyncPodium) -> dict[str, Any]:
            found = await podium.find_artifact(artifact_id)
            async with aclosing(podium.artifact_chunks(found.agent, artifact_id)) as chunks:
                async for chunk in chunks:
                    content.write(chunk)
            return found.artifact.as_json()

        described = target.ask(f"reading {artifact_id}", read)
        content.seek(0)
        _put_out(described, content, output, json=target.json)


def _put_out(described: dict[str, Any], content: BinaryIO, output: Path | None, *, json: bool) -> None:
    """Write an artifact to where it is wanted."""
    if output is not None:
        path = _saved(described["name"], content, output)
        if json:
            write_json({**described, "file": str(path)})
        else:
            say(f"{path}: {described['media_type']}, {described['size']} bytes")
    elif json:
        write_json({**described, **_whole(content)})
    elif sys.stdout.isatty():
        _show(described, content)
    else:
        sys.stdout.flush()
        shutil.copyfileobj(content, sys.stdout.buffer, _PIECE_BYTES)


def _whole(content: BinaryIO) -> dict[str, str]:
    data = content.read()
    try:
        return {"encoding": "utf-8", "content": data.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "content": base64.b64encode(data).decode()}


def _saved(name: str, content: BinaryIO, output: Path) -> Path:
    """Write the content to a new file, atomically."""
    from chronicle.errors import InvalidInput  # noqa: PLC0415
    from chronicle.system.atomic_files import replacing  # noqa: PLC0415

    path = output / name if output.is_dir() else output
    if path.exists():
        raise InvalidInput(f"{path} exists already; name another file")
    with replacing(path) as partial, partial.open("xb") as file:
        shutil.copyfileobj(content, file, _PIECE_BYTES)
    return path


def _show(described: dict[str, Any], content: BinaryIO) -> None:
    """Write text to a terminal, without its control characters.

    Raises:
        InvalidInput: the content is not text.
    """
    from chronicle.errors import InvalidInput  # noqa: PLC0415

    if not _is_text(content):
        raise InvalidInput(
            f"{described['name']} ({described['media_type']}, {described['size']} bytes) is not text, so it is not "
            "shown on a terminal; write it to a file with -o, or redirect the output"
        )
    content.seek(0)
    decoder = codecs.getincrementaldecoder("utf-8")()
    text, left_out = "\n", False
    while piece := content.read(_PIECE_BYTES):
        text = decoder.decode(piece) or text
        left_out = left_out or shown(text) != text
        write(shown(text))
    if not text.endswith("\n"):
        write("\n")
    if left_out:
        say("(control characters were left out; redirect the output to get the bytes as they are)")


def _is_text(content: BinaryIO) -> bool:
    """Return whether all of the content is UTF-8 without NUL."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while piece := content.read(_PIECE_BYTES):
            if "\0" in decoder.decode(piece):
                return False
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
