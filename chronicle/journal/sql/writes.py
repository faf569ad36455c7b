"""Queued writes, as rows: commits and steps that one holder of the writer lock may batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from chronicle.journal.sql import commits, steps
from chronicle.journal.sql.commits import Ready

if TYPE_CHECKING:
    from chronicle.journal.sql.port import Connection
    from chronicle.journal.sql.steps import ReadyStep

__all__ = ["ReadyWrite", "apply", "is_there"]

ReadyWrite: TypeAlias = "Ready | ReadyStep"


def apply(db: Connection, ready: ReadyWrite) -> None:
    """Apply a write in the open transaction.

    Raises:
        ChronicleError: it is refused; the caller must roll back.
    """
    if isinstance(ready, Ready):
        commits.apply(db, ready)
    else:
        steps.apply(db, ready)


def is_there(db: Connection, ready: ReadyWrite) -> bool:
    """Return whether exactly this write has been applied already."""
    return commits.is_there(db, ready) if isinstance(ready, Ready) else steps.is_there(db, ready)
