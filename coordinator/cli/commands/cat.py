"""``podium cat``: the content of a file, now or at an earlier version."""

from __future__ import annotations

import base64
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.terminal import say, shown, write, write_json
from chronicle.errors import InvalidInput, NotFound
from coordinator.cli.files import opened_files
from coordinator.cli.options import (
    DEFAULT_HOME,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    MomentArgument,
    UrlOption,
)

if TYPE_CHECKING:
    from typing import BinaryIO

    from chronicle.workspace.content.content import Content
    from coordinator.operations.files import Files

__all__ = ["cat"]


def cat(
    moment: MomentArgument,
    path: Annotated[
        str, typer.Argument(metavar="PATH[@ITERATION]", help="From the workspace's root; report.md@2 is its version 2.")
    ],
    *,
    iteration: Annotated[
        int | None, typer.Option("--iteration", metavar="N", min=1, help="The same as PATH@N.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Print one of an agent's files, or a version of it.

    The bytes are printed unchanged; on a terminal without control characters.
    """
    from podium.turn.upload import clean_path  # noqa: PLC0415  slow to import, and --help needs none

    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.cat(Gateway(url, api_key), moment, clean_path(path), iteration, json=json)
        return
    from chronicle.workspace.content.content import open as open_content  # noqa: PLC0415

    with opened_files(home, moment) as files:
        name, number, content = _find(files, clean_path(path), iteration)
        with open_content(files.blobs, content) as file:
            if json:
                _write_json(str(files.agent.address), name, number, content, file.read())
            elif sys.stdout.isatty():
                _show(file)
            else:
                sys.stdout.flush()
                shutil.copyfileobj(file, sys.stdout.buffer)


def _find(files: Files, path: str, iteration: int | None) -> tuple[str, int, Content]:
    """Return path, iteration and content that an argument names. A path that has an ``@`` itself takes precedence."""
    if iteration is None:
        entry = files.entry(path)
        if entry is not None:
            content = _content(path, entry.kind.value, entry.content, entry.target)
            return path, files.history(path)[-1].number, content
        name, at, number = path.rpartition("@")
        if not at or not number.isascii() or not number.isdecimal():
            raise files.missing(path)
        path, iteration = name, int(number)
    record = files.version(path, iteration)
    if record.deleted:
        raise NotFound(f"iteration {iteration} of {path} is its deletion; podium history lists the versions before it")
    return path, iteration, _content(path, record.kind.value, record.content, record.target)


def _content(path: str, kind: str, content: Content | None, target: bytes | None) -> Content:
    if target:
        raise InvalidInput(f"{path} is a symbolic link to {target.decode(errors='backslashreplace')}")
    if content is None:
        raise InvalidInput(f"{path} is a {kind}; only files have content")
    return content


def _write_json(agent: str, path: str, iteration: int, content: Content, data: bytes) -> None:
    try:
        encoding, text = "utf-8", data.decode()
    except UnicodeDecodeError:
        encoding, text = "base64", base64.b64encode(data).decode()
    write_json(
        {
            "agent": agent,
            "path": path,
            "iteration": iteration,
            "size": content.size,
            "hash": content.id,
            "encoding": encoding,
            "content": text,
        }
    )


def _show(file: BinaryIO) -> None:
    """Write text to a terminal, without its control characters."""
    text = file.read().decode(errors="replace")
    write(shown(text))
    if text and not text.endswith("\n"):
        write("\n")
    if shown(text) != text:
        say("(control characters were left out; redirect the output to get the bytes as they are)")
