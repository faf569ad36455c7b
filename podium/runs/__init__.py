"""Runs of an agentic loop that ends where a decision is needed, and goes on from a record. Begin with `run`.

A loop of one's own saves an `AgentRun` in a `RunStore` when it stops at a tool that somebody must decide about, and
goes on with what `decided` returns. Where the program itself may wait, ``ctx.decide`` needs none of this. The core
knows no agent and no journal. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.runs.deciding import decided as decided
    from podium.runs.memory import MemoryRunStore as MemoryRunStore
    from podium.runs.run import AgentRun as AgentRun
    from podium.runs.run import PendingCall as PendingCall
    from podium.runs.state_store import StateRunStore as StateRunStore
    from podium.runs.store import RunStore as RunStore

_MODULES: Final = {
    "AgentRun": "podium.runs.run",
    "MemoryRunStore": "podium.runs.memory",
    "PendingCall": "podium.runs.run",
    "RunStore": "podium.runs.store",
    "StateRunStore": "podium.runs.state_store",
    "decided": "podium.runs.deciding",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
