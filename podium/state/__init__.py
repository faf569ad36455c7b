"""Durable typed state: changes are tracked as they are made, and drained as RFC 6902 patches.

A state is a `podium.agent.models.delta_state.DeltaState`. A turn drains it once; replay moves a document forward with
`apply_patch`, and `from_json` loads a document. This package knows pydantic and Chronicle's canonical JSON, and nothing
of agents, stores or clocks. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
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
    from podium.state.state import (
        change,
        check,
        drain,
        drain_unfinished,
        from_json,
        is_dirty,
        migration_patch,
        take,
        to_json,
    )

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
    "change",
    "check",
    "diff",
    "drain",
    "drain_unfinished",
    "follow",
    "from_json",
    "is_dirty",
    "migration",
    "migration_patch",
    "take",
    "to_json",
]

_MODULES: Final = {
    "InvalidState": "podium.state.errors",
    "InvalidValue": "podium.state.errors",
    "MigrationFailed": "podium.state.errors",
    "MigrationMissing": "podium.state.errors",
    "OutsideTurn": "podium.state.errors",
    "Patch": "podium.state.patch.apply",
    "PatchError": "podium.state.errors",
    "StateError": "podium.state.errors",
    "StateLoadError": "podium.state.errors",
    "StateTooNew": "podium.state.errors",
    "UnseenChange": "podium.state.errors",
    "UnstorableState": "podium.state.errors",
    "UnsupportedType": "podium.state.errors",
    "apply_patch": "podium.state.patch.apply",
    "change": "podium.state.state",
    "check": "podium.state.state",
    "diff": "podium.state.patch.diff",
    "drain": "podium.state.state",
    "drain_unfinished": "podium.state.state",
    "follow": "podium.state.patch.follow",
    "from_json": "podium.state.state",
    "is_dirty": "podium.state.state",
    "migration": "podium.state.migrations",
    "migration_patch": "podium.state.state",
    "take": "podium.state.state",
    "to_json": "podium.state.state",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
