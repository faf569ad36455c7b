"""What a node has of agents' workspaces."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["clear_forks", "fork_name", "latest_epochs", "remove_fork", "remove_workspace"]

_FORK: Final = "fork"
"""The workspace id of an agent ends with a hyphen and a hash, so that of a fork is never that of an agent."""


def latest_epochs(layers: Path, workspace_ids: Iterable[str]) -> dict[str, int]:
    """Return the highest epochs of the layers that workspaces have in a directory; those without one are left out.

    The layout is that of `chronicle.workspace.layer.opening`.
    """
    found = {
        workspace_id: [int(path.name) for path in (layers / workspace_id).glob("*") if path.name.isdecimal()]
        for workspace_id in workspace_ids
    }
    return {workspace_id: max(epochs) for workspace_id, epochs in found.items() if epochs}


def remove_workspace(layers: Path, logs: Path, workspace_id: str) -> None:
    """Remove the layers and logs of an agent that is deleted: a new agent with the address would take them over."""
    if (layers / workspace_id).exists():
        shutil.rmtree(layers / workspace_id)
    for log in logs.glob(f"{workspace_id}.log*"):
        log.unlink(missing_ok=True)


def fork_name(path: Path) -> str:
    """Return a new name for a fork of the workspace at a path: its workspace id, and the name of its own path.

    What a process that was killed leaves of its forks is found by the path of the workspace (`clear_forks`).
    """
    return f"{_FORK}.{path.name}.{secrets.token_hex(4)}"


def clear_forks(layers: Path, path: Path, unmount: Callable[[Path], None]) -> None:
    """Remove what processes that have ended left of forks of the workspace at a path.

    Args:
        unmount: unmounts a path and removes it, if something is there.
    """
    pattern = f"{_FORK}.{path.name}.*"
    for name in sorted({each.name for directory in (layers, path.parent) for each in directory.glob(pattern)}):
        unmount(path.with_name(name))
        remove_fork(layers, path.with_name(name))


def remove_fork(layers: Path, path: Path) -> None:
    """Remove the layer and the path of a fork whose processes have ended, and which is not mounted any more."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(layers / path.name)
    with contextlib.suppress(OSError):  # a plain directory has no path of its own
        path.rmdir()
