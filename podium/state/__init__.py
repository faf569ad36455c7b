"""Durable typed state: changes are tracked as they are made, and drained as RFC 6902 patches.

A state is a `podium.agent.models.delta_state.DeltaState`. A turn drains it once; replay moves a document forward with
`apply_patch`, and `from_json` loads a document. This package knows pydantic and Chronicle's canonical JSON, and nothing
of agents, stores or clocks. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.state.errors import *  # noqa: F403
    from podium.state.migrations import migration as migration
    from podium.state.patch.apply import Patch as Patch
    from podium.state.patch.apply import apply_patch as apply_patch
    from podium.state.patch.diff import diff as diff
    from podium.state.patch.follow import follow as follow
    from podium.state.state import change as change
    from podium.state.state import check as check
    from podium.state.state import drain as drain
    from podium.state.state import drain_unfinished as drain_unfinished
    from podium.state.state import from_json as from_json
    from podium.state.state import is_dirty as is_dirty
    from podium.state.state import migration_patch as migration_patch
    from podium.state.state import take as take
    from podium.state.state import to_json as to_json

_MODULES: Final = {
    "Patch": "podium.state.patch.apply",
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
_OTHERS: Final = ("podium.state.errors",)

__getattr__, __dir__ = lazy_exports(__name__, _MODULES, *_OTHERS)
