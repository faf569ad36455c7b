"""Durable typed state: changes are tracked as they are made, and drained as RFC 6902 patches.

A state is a `podium.agent.models.delta_state.DeltaState`. A turn drains it once; replay moves a document forward with
`apply_patch`, and `from_json` loads a document. This package knows pydantic and Chronicle's canonical JSON, and nothing
of agents, stores or clocks.
"""

from __future__ import annotations

from podium.state.errors import (
    InvalidState,
    InvalidValue,
    MigrationFailed,
    MigrationMissing,
    OutsideTurn,
    PatchError,
    StateError,
    StateLoadError,
    StateTooNew,
    UnseenChange,
    UnstorableState,
    UnsupportedType,
)
from podium.state.migrations import migration
from podium.state.patch.apply import Patch, apply_patch
from podium.state.patch.diff import diff
from podium.state.patch.follow import follow
from podium.state.state import check, drain, from_json, is_dirty, migration_patch, take, to_json

__all__ = [
    "InvalidState",
    "InvalidValue",
    "MigrationFailed",
    "MigrationMissing",
    "OutsideTurn",
    "Patch",
    "PatchError",
    "StateError",
    "StateLoadError",
    "StateTooNew",
    "UnseenChange",
    "UnstorableState",
    "UnsupportedType",
    "apply_patch",
    "check",
    "diff",
    "drain",
    "follow",
    "from_json",
    "is_dirty",
    "migration",
    "migration_patch",
    "take",
    "to_json",
]
