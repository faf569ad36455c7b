"""Versions of files, artifacts, differences, and contents, as commands show them."""

from __future__ import annotations

import sys
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from chronicle.cli_kit.changes import LETTERS
from chronicle.cli_kit.terminal import json_text, one_line, say, shown, write, write_line, write_lines
from chronicle.cli_kit.times import iso
from coordinator.cli.terminal import table
from coordinator.cli.views.events import gist

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["show_artifacts", "show_diff", "show_file_changes", "show_patch", "show_text", "show_versions"]

_CONTROLS_LEFT_OUT: Final = "(control characters were left out; redirect the output to get the bytes as they are)"


def show_versions(versions: Iterable[Mapping[str, Any]]) -> None:
    """Write the versions of a path as a table."""
    table(
        ("ITERATION", "TIME", "TURN", "OP", "SIZE", "HASH"),
        [
            (
                str(version["iteration"]),
                iso(version["timestamp"]),
                str(version["turn"]),
                version["op"],
                str(version["size"]),
                version["hash"][:16],
            )
            for version in versions
        ],
    )


def show_artifacts(artifacts: Iterable[Mapping[str, Any]]) -> None:
    """Write artifacts as a table."""
    table(
        ("ARTIFACT", "TURN", "TIME", "SIZE", "TYPE", "NAME"),
        [
            (
                artifact["artifact_id"],
                str(artifact["turn"]),
                iso(artifact["timestamp"]),
                str(artifact["size"]),
                artifact["media_type"],
                artifact["name"],
            )
            for artifact in artifacts
        ],
    )


def show_text(data: bytes) -> None:
    """Write a file's content to a terminal, without control characters; into a pipe unchanged."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    text = data.decode(errors="replace")
    write(shown(text))
    if text and not text.endswith("\n"):
        write("\n")
    if shown(text) != text:
        say(_CONTROLS_LEFT_OUT)


def show_patch(patch: Sequence[Mapping[str, Any]], most: int | None = None) -> None:
    """Write a patch of a state, an operation a line.

    Args:
        most: the limit of operations; a last line counts the others.
    """
    for operation in patch[:most]:
        write_line(f"  {json_text(operation)}")
    if most is not None and len(patch) > most:
        write_line(f"  … and {len(patch) - most} more; --json has them all")


def show_file_changes(changes: Iterable[Mapping[str, Any]]) -> None:
    """Write changed files, one a line."""
    for change in changes:
        path = f"{change['old_path']} -> {change['path']}" if change.get("old_path") else change["path"]
        write_line(f"  {LETTERS[change['change']]} {one_line(path)}")


def show_diff(found: Mapping[str, Any]) -> None:
    """Write the differences between two moments."""
    before, after, transcript = found["before"], found["after"], found["transcript"]
    say(f"{before['agent']}@{before['turn']} -> {after['agent']}@{after['turn']}")
    if found["state"]:
        write_line("state")
        show_patch(found["state"])
    if found["files"]:
        write_line("files")
        write_lines(BytesIO(found["diff"].encode()), write_line)
    if transcript["removed"] or transcript["added"]:
        write_line("transcript")
        for sign, events in (("-", transcript["removed"]), ("+", transcript["added"])):
            for event in events:
                who = "user" if event["type"] == "user_message" else "agent"
                write_line(f"{sign} turn {event['turn']} {who}: {one_line(gist(event['type'], event['payload']))}")
    if not (found["state"] or found["files"] or transcript["removed"] or transcript["added"]):
        say("nothing differs")
