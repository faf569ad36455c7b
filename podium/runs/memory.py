"""A store of runs in memory: the default of a loop, and of tests."""

from __future__ import annotations

from chronicle.canonical import decode, encode
from podium.runs.run import AgentRun

__all__ = ["MemoryRunStore"]


class MemoryRunStore:
    """Runs of one process."""

    def __init__(self) -> None:
        self._runs: dict[str, bytes] = {}

    async def save(self, run: AgentRun) -> None:
        """Store a run; see `RunStore.save`."""
        self._runs[run.id] = encode(run.to_json())

    async def load(self, run_id: str) -> AgentRun | None:
        """Return a run; see `RunStore.load`."""
        kept = self._runs.get(run_id)
        return AgentRun.from_json(decode(kept)) if kept is not None else None

    async def delete(self, run_id: str) -> None:
        """Delete a run; see `RunStore.delete`."""
        self._runs.pop(run_id, None)
