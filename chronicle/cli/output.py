"""Data to stdout, talk to stderr, and nothing that is stored can steer the terminal."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.repository import Committed

__all__ = ["commit_object", "say", "shown", "time_text", "write", "write_bytes", "write_json"]


def write(line: str) -> None:
    """Write a line of data."""
    sys.stdout.write(shown(line) + "\n")


def write_json(value: object) -> None:
    """Write a value as a line of JSON."""
    # Escaped: whatever a name holds, it neither breaks the encoding nor steers the terminal.
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


def write_bytes(lines: Iterable[bytes]) -> None:
    """Write lines, each with its newline: as they are into a pipe, safe onto a terminal."""
    if sys.stdout.isatty():
        for line in lines:
            write(line.decode("utf-8", "backslashreplace").removesuffix("\n"))
        return
    sys.stdout.flush()
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def say(line: str) -> None:
    """Say something to the user, on stderr."""
    sys.stderr.write(shown(line) + "\n")
    sys.stderr.flush()


def commit_object(item: Committed) -> dict[str, Any]:
    """Return a commit as it is put into JSON."""
    return {
        "turn": item.turn,
        "timestamp": item.timestamp,
        "message": item.message,
        "tree_id": item.ref.tree_id,
        "oplog_id": item.ref.oplog_id,
    }


def time_text(epoch_ms: int) -> str:
    """Return a time as ISO 8601 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(text: str) -> str:
    """Return text without what could steer a terminal, in what any encoding holds."""
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )
