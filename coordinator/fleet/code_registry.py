"""The code of each agent type, and the known source files of each code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.fleet.code_stamp import CodeStamps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.fleet.model import Code, Loaded

__all__ = ["CodeRegistry"]


class CodeRegistry:
    """The codes of a fleet, one for each agent type.

    The source files of a code are learned from its first host; until then only the agent's file is known.
    """

    def __init__(self) -> None:
        self._codes: dict[str, Code] = {}
        self._sources: dict[Code, frozenset[str]] = {}
        """The files that hosts have reported for each code."""
        self._broken: dict[Code, tuple[str, str]] = {}
        """The stamp of each code that could not be loaded, and the error."""
        self.stamps = CodeStamps()

    def register(self, code: Code) -> bool:
        """Set the code of its agent type; return whether it differs from the previous one."""
        if self._codes.get(code.agent_type) == code:
            return False
        self._codes[code.agent_type] = code
        return True

    def get(self, agent_type: str) -> Code | None:
        """Return the code of an agent type."""
        return self._codes.get(agent_type)

    def drop(self, code: Code, problem: str) -> None:
        """Remove a code that cannot be loaded, until it is registered again.

        Args:
            problem: why; see `problems`.
        """
        if self._codes.get(code.agent_type) == code:
            del self._codes[code.agent_type]
            self._broken[code] = (self.stamp_of(code), problem)

    def loads(self, code: Code) -> None:
        """Record that a code was loaded: it has no problem any more."""
        self._broken.pop(code, None)

    def edited(self) -> list[Code]:
        """Return the codes that could not be loaded and whose known files have changed since: they may load now."""
        return [
            code
            for code, (stamp, _) in self._broken.items()
            if code.agent_type not in self._codes and self.stamp_of(code) != stamp
        ]

    @property
    def problems(self) -> dict[str, str]:
        """Why codes cannot be loaded, by agent type; empty while all known codes load."""
        return {code.agent_type: problem for code, (_, problem) in self._broken.items()}

    def current_stamps(self, others: Iterable[Code]) -> dict[Code, str]:
        """Return the current stamps of the registered codes, and of others."""
        return {code: self.stamp_of(code) for code in sorted({*self._codes.values(), *others})}

    def stamp_of(self, code: Code) -> str:
        """Return the current stamp of a code's known files."""
        return self.stamps.of(self._sources.get(code, frozenset({code.file})))

    def learn_sources(self, loaded: Loaded, stamp: str) -> str | None:
        """Add the files that a host imported to the files of its code.

        If the known files changed during the import, nothing is added: the host keeps the stamp of its start, which is
        outdated, and is retired for it.

        Args:
            stamp: the stamp of the code at the start of the host.

        Returns:
            the code's new stamp, ``None`` if nothing was added.
        """
        code = loaded.code
        if self.stamp_of(code) != stamp:
            return None
        self._sources[code] = self._sources.get(code, frozenset()).union(loaded.sources)
        return self.stamp_of(code)
