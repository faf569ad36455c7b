"""Telling whether an agent's source changed since a host imported it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["code_stamp"]


def code_stamp(file: str) -> str:
    """Return what identifies an agent's sources as they are now.

    It covers the agent's file and the Python files beside it, which it can import: their names, sizes and times of
    change. A file that is gone gives a stamp of its own.
    """
    path = Path(file)
    parts = []
    for source in sorted({path, *path.parent.glob("*.py")}):
        try:
            found = source.stat()
        except OSError:
            parts.append(f"{source.name}:gone")
        else:
            parts.append(f"{source.name}:{found.st_size}:{found.st_mtime_ns}")
    return "|".join(parts)
