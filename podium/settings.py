"""Environment variables of podium: the one module of the package that reads or sets them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from podium.errors import PodiumError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "WORKSPACE_VARIABLE",
    "environment_with_workspace",
    "forbid_workspace_variable",
    "read_workspace_variable",
    "set_workspace_variable",
]

WORKSPACE_VARIABLE: Final = "AGENT_WORKSPACE"
"""The path of the agent's workspace, for its code and for programs that it starts."""


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


def forbid_workspace_variable(refusal: str) -> None:
    """Remove the variable from this process, and make reading it raise `PodiumError`.

    Args:
        refusal: the message: why there is none, and what to use.
    """
    set_workspace_variable(None)
    _Environ.refusal = refusal
    os.environ.__class__ = _Environ


def set_workspace_variable(path: Path | str | None) -> None:
    """Set the variable in this process; ``None`` removes it."""
    if path is None:
        os.environ.pop(WORKSPACE_VARIABLE, None)
    else:
        os.environ[WORKSPACE_VARIABLE] = str(path)
