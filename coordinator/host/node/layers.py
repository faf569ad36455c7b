"""What a node has of agents' workspaces."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["latest_epochs", "remove_workspace"]


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
