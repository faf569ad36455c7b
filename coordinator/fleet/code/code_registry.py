"""The code of each agent type, and the known source files of each code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.fleet.code.code_stamp import CodeStamps
from coordinator.fleet.nodes.nodes import NO_NEEDS, Needs
from coordinator.fleet.wakes.retries import retry_delay_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.fleet.model import Code, Loaded

__all__ = ["CodeRegistry"]


@dataclass(frozen=True, slots=True)
class _Broken:
    """Why a code could not be loaded."""

    stamp: str
    problem: str
    failures: int
    """In a row."""
    retry_s: float | None
    """When to try again if nothing was edited, on the monotonic clock; ``None`` for never."""


class CodeRegistry:
    """The codes of a fleet, one for each agent type.

    The source files of a code are learned from its first host; until then only the agent's file is known.
    """

    def __init__(self) -> None:
        self._codes: dict[str, Code] = {}
        self._sources: dict[Code, frozenset[str]] = {}
        """The files that hosts have reported for each code."""
        self._broken: dict[Code, _Broken] = {}
        """The codes that could not be loaded."""
        self.loaded: set[Code] = set()
        """The codes that a host has loaded."""
        self.shared: set[Code] = set()
        """Those of them whose classes declared shared isolation when they were last loaded."""
        self._needing: dict[Code, Loaded] = {}
        """Those of them whose classes declared needs, as they were last loaded."""
        self.stamps = CodeStamps()
        self._used: dict[Code, None] = {}
        """The codes whose agents were woken, the latest last."""

    def register(self, code: Code) -> bool:
        """Set the code of its agent type; return whether it differs from the previous one."""
        if self._codes.get(code.agent_type) == code:
            return False
        self._codes[code.agent_type] = code
        for other in [other for other in self._broken if other.agent_type == code.agent_type and other != code]:
            del self._broken[other]
        return True

    def get(self, agent_type: str) -> Code | None:
        """Return the code of an agent type."""
        return self._codes.get(agent_type)

    def note_use(self, code: Code) -> None:
        """Record that an agent of a code is woken."""
        self._used.pop(code, None)
        self._used[code] = None

    def latest_first(self) -> tuple[Code, ...]:
        """Return the codes, those that were used last first; the others follow in the order of their registration."""
        used = dict.fromkeys(reversed(self._used))
        return (*used, *(code for code in self._codes.values() if code not in used))

    def drop(self, code: Code, problem: str, now_s: float | None = None) -> None:
        """Remove a code that cannot be loaded, until it is registered again.

        Args:
            problem: why; see `problems`.
            now_s: the time, if the problem may pass: then the code is tried again after a while.
        """
        if self._codes.get(code.agent_type) == code:
            del self._codes[code.agent_type]
            failures = self._broken[code].failures + 1 if code in self._broken else 1
            retry_s = now_s + retry_delay_s(failures) if now_s is not None else None
            self._broken[code] = _Broken(self.stamp_of(code), problem, failures, retry_s)

    def loads(self, loaded: Loaded) -> bool:
        """Record that a code was loaded: it has no problem any more, and its declarations are known.

        Returns:
            whether it had been dropped, and is registered again: the start of another host for it had failed.
        """
        code = loaded.code
        again = self._broken.pop(code, None) is not None and code.agent_type not in self._codes
        if again:
            self._codes[code.agent_type] = code
        self.loaded.add(loaded.code)
        if loaded.isolation == "shared":
            self.shared.add(loaded.code)
        else:
            self.shared.discard(loaded.code)
        if loaded.needs != NO_NEEDS:
            self._needing[loaded.code] = loaded
        else:
            self._needing.pop(loaded.code, None)
        return again

    def needs(self) -> dict[Code, Needs | None]:
        """Return what classes declared, if they declared any needs; ``None`` if they were edited since."""
        return {
            code: loaded.needs if loaded.is_of(code, self.stamps) else None for code, loaded in self._needing.items()
        }

    def to_try_again(self, now_s: float) -> list[Code]:
        """Return the codes that could not be loaded and may load now: their files have changed, or time has passed."""
        return [
            code
            for code, broken in self._broken.items()
            if code.agent_type not in self._codes
            and ((broken.retry_s is not None and broken.retry_s <= now_s) or self.stamp_of(code) != broken.stamp)
        ]

    @property
    def problems(self) -> dict[str, str]:
        """Why codes cannot be loaded, by agent type; empty while all known codes load."""
        return {code.agent_type: broken.problem for code, broken in self._broken.items()}

    def current_stamps(self, others: Iterable[Code]) -> dict[Code, str]:
        """Return the current stamps of the registered codes, and of others."""
        return {code: self.stamp_of(code) for code in sorted({*self._codes.values(), *others})}

    def stamp_of(self, code: Code) -> str:
        """Return the current stamp of a code's known files."""
        return self.stamps.of(self._sources.get(code, code.files))

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
