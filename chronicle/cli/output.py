"""Output of ``chronicle``: control characters are escaped in all of it, into a pipe as well; JSON is ASCII."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from chronicle.cli_kit import terminal

if TYPE_CHECKING:
    from chronicle.repository import Committed

__all__ = ["commit_object", "say", "write", "write_json"]


def write(line: str) -> None:
    """Write a line of data."""
    terminal.write(terminal.one_line(line, keep_tabs=True) + "\n", flush=False)


def write_json(value: object) -> None:
    """Write a value as a line of JSON."""
    terminal.write(json.dumps(value, ensure_ascii=True) + "\n", flush=False)


def say(line: str) -> None:
    """Write a message for the user to stderr."""
    terminal.say(terminal.one_line(line, keep_tabs=True))


def commit_object(item: Committed) -> dict[str, Any]:
    """Return a commit as it is in JSON."""
    return {
        "turn": item.turn,
        "timestamp": item.timestamp,
        "message": item.message,
        "tree_id": item.ref.tree_id,
        "oplog_id": item.ref.oplog_id,
    }
