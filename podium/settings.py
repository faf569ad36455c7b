"""Environment variables of podium: the one module of the package that reads or sets them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, Self

from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

__all__ = [
    "NO_WORKSPACE_VARIABLE",
    "WORKSPACE_VARIABLE",
    "WorkspaceReads",
    "environment_with_workspace",
    "forbid_workspace_variable",
    "read_workspace_variable",
    "set_workspace_variable",
]

WORKSPACE_VARIABLE: Final = "AGENT_WORKSPACE"
"""The path of the agent's workspace, for its code and for programs that it starts."""
NO_WORKSPACE_VARIABLE: Final = (
    "is not set in shared isolation, where agents of several workspaces share a process: use ctx.workspace in a hook, "
    "or set isolation = 'process'"
)
"""Text that follows the name of the variable."""
_COLLECTIONS: Final = os.__file__.replace("os.py", "_collections_abc.py")
_LIBRARY: Final = frozenset({__file__, os.__file__, _COLLECTIONS, "<frozen os>", "<frozen _collections_abc>"})
"""The code between a read and its caller."""


def environment_with_workspace(path: str) -> dict[str, str]:
    """Return the environment of a child process whose agent has its workspace at a path."""
    return {**os.environ, WORKSPACE_VARIABLE: path}


def read_workspace_variable() -> str | None:
    """Return this process's value of the variable."""
    return os.environ.get(WORKSPACE_VARIABLE)


class _Environ(type(os.environ)):  # type: ignore[misc]  # the class has no public name
    """The environment of a process in which reading the variable is an error."""

    refusal: str

    def __getitem__(self, key: str) -> str:
        if key == WORKSPACE_VARIABLE:
            raise PodiumError(self.refusal)
        value: str = super().__getitem__(key)
        return value

    def __contains__(self, key: object) -> bool:
        return key != WORKSPACE_VARIABLE and super().__contains__(key)


def forbid_workspace_variable(refusal: str) -> None:
    """Remove the variable from this process, and make reading it raise `PodiumError`.

    Args:
        refusal: the message: why there is none, and what to use.
    """
    set_workspace_variable(None)
    _Environ.refusal = refusal
    os.environ.__class__ = _Environ


class _NotingEnviron(type(os.environ)):  # type: ignore[misc]  # likewise
    """The environment of a process in which reads of the variable are noted."""

    notes: WorkspaceReads

    def __getitem__(self, key: str) -> str:
        value: str = super().__getitem__(key)
        if key == WORKSPACE_VARIABLE:
            self.notes.read()
        return value

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            if key == WORKSPACE_VARIABLE:
                self.notes.listed += 1
            yield key


class WorkspaceReads:
    """Notes, as a context manager, where code reads the variable.

    A copy of the whole environment, as for a program that is started, is no read.
    """

    def __init__(self) -> None:
        self.place: str | None = None
        """File and line of the first read; ``None`` without one."""
        self.listed = 0
        """How often the variable was listed among all, and not read then: a copy lists all names, then reads all."""

    def __enter__(self) -> Self:
        self._before = os.environ.__class__
        _NotingEnviron.notes = self
        os.environ.__class__ = _NotingEnviron
        return self

    def __exit__(self, *_: object) -> None:
        os.environ.__class__ = self._before

    def read(self) -> None:
        """Note a read by the calling code."""
        if self.listed:
            self.listed -= 1
        elif self.place is None:
            frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  the one way to learn the caller
            while frame is not None and frame.f_code.co_filename in _LIBRARY:
                frame = frame.f_back
            self.place = f"{frame.f_code.co_filename}, line {frame.f_lineno}" if frame is not None else "its import"


def set_workspace_variable(path: Path | str | None) -> None:
    """Set the variable in this process; ``None`` removes it."""
    if path is None:
        os.environ.pop(WORKSPACE_VARIABLE, None)
    else:
        os.environ[WORKSPACE_VARIABLE] = str(path)
