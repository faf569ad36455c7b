"""A store of runs in the state of an agent: over the journal, by the commit of the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.runs.run import AgentRun
from podium.state.plain_json import plain_json

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from chronicle.canonical import Json, JsonObject

__all__ = ["StateRunStore"]


class StateRunStore:
    """Runs of one agent, in a field of its state.

    A run becomes durable, or is gone, with the commit of the turn that saves or deletes it, together with what the loop
    said and did until there; a turn that fails changes no run. Forks have the runs, a rewind puts them back, and
    `podium verify` covers them. A save records what changed of the run: a conversation that went on costs its new
    messages.

    Args:
        runs: a field of the state that is declared as ``dict[str, Any]``.
    """

    def __init__(self, runs: MutableMapping[str, Any]) -> None:
        self._runs = runs

    async def save(self, run: AgentRun) -> None:
        """Store a run; see `RunStore.save`."""
        document = run.to_json()
        if run.id in self._runs:
            _change(self._runs[run.id], document)
        else:
            self._runs[run.id] = document

    async def load(self, run_id: str) -> AgentRun | None:
        """Return a run; see `RunStore.load`."""
        return AgentRun.from_json(plain_json(self._runs[run_id])) if run_id in self._runs else None

    async def delete(self, run_id: str) -> None:
        """Delete a run; see `RunStore.delete`."""
        self._runs.pop(run_id, None)


def _change(kept: MutableMapping[str, Any], document: JsonObject) -> None:
    """Make a kept run another one, by the least change of its fields."""
    for name in [name for name in kept if name not in document]:
        del kept[name]
    for name, value in document.items():
        if isinstance(value, list) and name in kept:
            same = _same(kept[name], value)
            kept[name][same:] = value[same:]
        elif kept.get(name) != value:
            kept[name] = value


def _same(kept: list[Json], items: list[Json]) -> int:
    """Return how many items two lists begin with in common."""
    pairs = enumerate(zip(kept, items, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(kept), len(items)))
