"""When a commit carries a snapshot: bounds what opening replays, and amortizes what snapshots cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from podium.agent_record import AgentRecord

__all__ = ["FEW_TURNS", "MAX_BYTES", "MAX_TURNS", "SnapshotPolicy"]

MAX_TURNS: Final = 256
"""Most turns that opening replays over a snapshot. A replayed turn costs about 20 µs, a snapshot the state's size."""
FEW_TURNS: Final = 32
"""Most turns that opening replays over a snapshot that is much smaller than they are: 256 turns of an agent that counts
took 5 ms of its wake, a fifth."""
_CHEAP: Final = 8
"""How many times the size of the snapshot the replayed payloads then are."""
MAX_BYTES: Final = 256 * 1024
"""Most payload bytes that opening replays; the state's own size if that is larger."""


class SnapshotPolicy:
    """Counts the turns and bytes that opening would replay.

    Args:
        most_turns: most turns that opening may replay.
    """

    def __init__(self, most_turns: int = MAX_TURNS) -> None:
        self._most_turns = most_turns
        self._turns = 0
        self._bytes = 0
        self._state_bytes = 0

    def opened(self, record: AgentRecord) -> None:
        """Start from what opening the agent replayed."""
        self._turns = record.replayed_turns
        self._bytes = record.replayed_bytes
        self._state_bytes = record.snapshot_bytes

    @property
    def due(self) -> bool:
        """Whether the next turn should carry a snapshot."""
        if self._turns + 1 >= FEW_TURNS and 0 < self._state_bytes * _CHEAP <= self._bytes:
            return True
        return self._turns + 1 >= self._most_turns or self._bytes >= max(MAX_BYTES, self._state_bytes)

    def committed(self, payload_bytes: int, snapshot: bytes | None) -> None:
        """Count a committed turn.

        Args:
            payload_bytes: of its ``turn.committed``.
            snapshot: the snapshot that its commit carried, if any.
        """
        if snapshot is None:
            self._turns += 1
            self._bytes += payload_bytes
        else:
            self._turns = self._bytes = 0
            self._state_bytes = len(snapshot)
