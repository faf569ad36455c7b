"""Test tools for agents: no Ray, FUSE or service, and the turn code of production."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from podium.testing.harness import AgentHarness, Exchange, HarnessOptions

if TYPE_CHECKING:
    from podium.testing.run_store_contract import RunStoreContract
    from podium.testing.simulator import Broken, Simulator

__all__ = ["AgentHarness", "Broken", "Exchange", "HarnessOptions", "RunStoreContract", "Simulator"]

_LATER: Final = {
    "Broken": "podium.testing.simulator",
    "RunStoreContract": "podium.testing.run_store_contract",
    "Simulator": "podium.testing.simulator",
}


def __getattr__(name: str) -> Any:
    """Import the simulator, and what needs pytest, at the first use: tests of agents need neither."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
