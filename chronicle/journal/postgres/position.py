"""The position of a server in its write-ahead log: a restored database, and a promoted standby, have another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["POSITION", "ServerPosition"]

POSITION: Final = """
SELECT system_identifier, ('x' || left(pg_walfile_name(flushed), 8))::bit(32)::bigint, (flushed - '0/0')::bigint
FROM pg_control_system(), pg_current_wal_flush_lsn() AS flushed
"""
"""Its three numbers, of a server that is no standby. Any role may ask so.

The timeline is in the names of the log's files: ``pg_control_checkpoint`` has it only after the checkpoint that follows
a promotion.
"""


@dataclass(frozen=True, slots=True)
class ServerPosition:
    """A position."""

    system: int
    """The identifier that ``initdb`` gave the server; its physical copies have the same one."""
    timeline: int
    """It grows when a standby is promoted, and when a server is restored to a moment."""
    flushed: int
    """Bytes of the log that are durable, since the first server of the timeline's history began."""

    def continues(self, other: ServerPosition) -> bool:
        """Whether it is on the timeline of another one."""
        return (self.system, self.timeline) == (other.system, other.timeline)

    def __str__(self) -> str:
        """Return it as the server's own tools write it."""
        place = f"{self.flushed >> 32:X}/{self.flushed & 0xFFFFFFFF:X}"
        return f"{place} of timeline {self.timeline} of server {self.system}"
