"""Which code each agent type runs, and which files that code is known to consist of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.fleet.code_stamp import CodeStamps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.fleet.model import Code, Loaded

__all__ = ["CodeRegistry"]


class CodeRegistry:
    """The codes of a fleet, one for each agent type.

    The files of a code are learned from its first host; until then only the agent's own file is known.
    """

    def __init__(self) -> None:
        self._codes: dict[str, Code] = {}
        self._sources: dict[Code, frozenset[str]] = {}
        """The files that hosts were seen to import for each code."""
        self.stamps = CodeStamps()

    def register(self, code: Code) -> bool:
        """Set the code of its agent type; return whether it is another one than before."""
        if self._codes.get(code.agent_type) == code:
            return False
        self._codes[code.agent_type] = code
        return True

    def get(self, agent_type: str) -> Code | None:
        """Return the code of an agent type."""
        return self._codes.get(agent_type)

    def drop(self, code: Code) -> None:
        """Forget a code that cannot be loaded, until it is registered again."""
        if self._codes.get(code.agent_type) == code:
            del self._codes[code.agent_type]

    def current_stamps(self, others: Iterable[Code]) -> dict[Code, str]:
        """Return the stamps of the registered codes, and of others, as their files are now."""
        return {code: self.stamp_of(code) for code in sorted({*self._codes.values(), *others})}

    def stamp_of(self, code: Code) -> str:
        """Return the stamp of a code's known files as they are now."""
        return self.stamps.of(self._sources.get(code, frozenset({code.file})))

    def learn_sources(self, loaded: Loaded, stamp: str) -> str | None:
        """Add the files that a host imported to its code's.

        If the known files changed while the host imported them, nothing is learned: the host keeps the stamp that it
        was started with, by which it is retired.

        Args:
            stamp: that of the code when the host was started.

        Returns:
            the code's new stamp, ``None`` if nothing was learned.
        """
        code = loaded.code
        if self.stamp_of(code) != stamp:
            return None
        self._sources[code] = self._sources.get(code, frozenset()).union(loaded.sources)
        return self.stamp_of(code)
