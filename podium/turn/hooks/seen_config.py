"""Which configuration an agent has seen: what ``on_config_change`` is told, and which turn records it."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject
    from podium.events import Cause

__all__ = ["SeenConfig"]


class SeenConfig:
    """The configuration that an agent has seen, by its journal, beside the current one.

    An agent whose class declares ``on_config_change`` has seen a configuration when that hook has returned; any other
    agent, when a turn was committed under it.

    Args:
        current: the configuration of the activation; it does not change.
        observed: whether the class declares ``on_config_change``.
    """

    def __init__(self, current: JsonObject, *, observed: bool) -> None:
        self._current = current
        self._observed = observed
        self.seen: JsonObject = {}

    def changes(self) -> dict[str, tuple[Json, Json]]:
        """Return what ``on_config_change`` has to be told, by key: the old and the new value; empty if not declared."""
        seen, current = self.seen, self._current
        if not self._observed or seen == current:
            return {}
        return {
            key: (deepcopy(seen.get(key)), deepcopy(current.get(key)))
            for key in sorted(seen.keys() | current.keys())
            if seen.get(key) != current.get(key)
        }

    def to_record(self, cause: Cause) -> JsonObject | None:
        """Return the configuration if a turn of this cause has to record that the agent has seen it."""
        if self.seen == self._current or (self._observed and cause != "config"):
            return None
        return self._current
