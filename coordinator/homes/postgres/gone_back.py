"""Whether a database may have gone back, by the positions that it had: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.journal.postgres.position import ServerPosition
    from coordinator.homes.generation import Generation

__all__ = ["Known", "why_gone_back"]


@dataclass(frozen=True, slots=True)
class Known:
    """A database's record of itself."""

    generation: Generation
    marked: ServerPosition
    """Its position when it was written."""


def why_gone_back(
    now: ServerPosition, record: Known | None, node: Known | None, seen: ServerPosition | None
) -> str | None:
    """Return why a database may have gone back, as the rest of a sentence about it; ``None`` if it has not.

    Args:
        now: its position.
        record: its own record; ``None`` if it has none.
        node: its record as this node knew it; ``None`` if this node has not seen one.
        seen: the last position that this node has seen.
    """
    if record is not None and not now.continues(record.marked):
        return f"is at {now}, and was at {record.marked}: it was restored or moved, or a standby was promoted"
    if node is not None and (record is None or _is_older(record, node)):
        return "has an older record of the home than this node has seen: it was restored"
    if seen is not None and now.continues(seen) and now.flushed < seen.flushed:
        return f"is at {now}, and this node has seen it at {seen}: it was restored"
    return None


def _is_older(record: Known, node: Known) -> bool:
    if record.generation.number != node.generation.number:
        return record.generation.number < node.generation.number
    return not record.marked.continues(node.marked) or record.marked.flushed < node.marked.flushed
