"""What a command may do, and how much of everything it may use; what came of it. Pure: nothing here is looked up.

A policy means the same on each rung of the ladder, or is refused there. What a rung covers beyond it, and what it does
not, is the table of ``docs/internals/sandbox.md``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, get_args

from podium.errors import SandboxRefused
from podium.sandbox.egress.allow_list import Proxied

__all__ = ["RUNGS", "Ended", "Limit", "Limits", "Network", "Policy", "Rung"]

Rung = Literal["none", "landlock", "bubblewrap"]
"""What confines a command; each one is stronger than those before it."""
RUNGS: Final[tuple[Rung, ...]] = get_args(Rung)
Network = Literal["none", "open"] | Proxied
Limit = Literal["time", "memory", "processes", "output", "disk"]
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one command with everything that it starts; what exceeds one is ended."""

    time_s: float = 600.0
    memory_bytes: int = 4 << 30
    """Of all its processes: private pages that are resident."""
    processes: int = 512
    output_bytes: int = 64 << 20
    """Of both streams together; more is not delivered."""
    disk_bytes: int = 10 << 30
    """Blocks of all files below its writable paths and its temporary directory; also the size of any one file."""

    def __post_init__(self) -> None:
        """Refuse what cannot be a bound."""
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise SandboxRefused(f"the limit {name} of a sandbox has to be greater than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a command may reach. The programs and libraries of the system can be read on every rung."""

    writable: tuple[Path, ...] = ()
    """Directories, absolute. A temporary directory of its own comes with each command (``TMPDIR``)."""
    readable: tuple[Path, ...] = ()
    """Files and directories, absolute."""
    network: Network = "none"
    environment: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """All of its environment, but for ``PATH``, ``HOME`` and ``TMPDIR``, which it may set. Nothing is inherited."""
    limits: Limits = field(default_factory=Limits)
    at_least: Rung = "landlock"
    """The weakest rung that will do; the strongest one that works here is used."""

    def __post_init__(self) -> None:
        """Refuse what no rung can keep."""
        if self.at_least not in RUNGS:
            raise SandboxRefused(f"there is no sandbox {self.at_least!r}; there are {', '.join(RUNGS)}")
        if not isinstance(self.network, Proxied) and self.network not in ("none", "open"):
            raise SandboxRefused(f"a sandbox has no network {self.network!r}; it is none, open, or Proxied(allow=…)")
        for path in (*self.writable, *self.readable):
            if not path.is_absolute() or os.path.normpath(path) != os.fspath(path):
                raise SandboxRefused(f"{path}: a path of a sandbox is absolute, without . and ..")
            if path == Path("/"):
                raise SandboxRefused("/ would open the whole machine to a sandbox: name the directories that it needs")
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise SandboxRefused(f"{name!r} cannot be a variable of an environment")

    @property
    def needs(self) -> Rung:
        """The weakest rung that can keep it.

        Landlock's rules only add, so what is writable is so all the way down; and a port that it allows is one of all
        hosts, so there is no way to a proxy only.
        """
        beneath = any(path.is_relative_to(above) for path in self.readable for above in self.writable)
        hidden = beneath or isinstance(self.network, Proxied)
        return max(self.at_least, "bubblewrap" if hidden else "none", key=RUNGS.index)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. Nothing that it started runs any more."""

    status: int
    """Its exit status; 128 and the number of the signal that killed it, as shells say."""
    limit: Limit | None
    """The limit that ended it."""
    rung: Rung
    """What it ran on."""
    restored: tuple[Path, ...]
    """Hooks, configurations of git and start files of shells that it had changed: they are as they were."""
