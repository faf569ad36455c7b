"""What a node has of agents' workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["latest_epochs"]


def latest_epochs(layers: Path, workspace_ids: Iterable[str]) -> dict[str, int]:
    """Return the highest epochs of the layers that workspaces have in a directory; those without one are left out.

    The layout is that of `chronicle.workspace.layer.opening`.
    """
    found = {
        workspace_id: [int(path.name) for path in (layers / workspace_id).glob("*") if path.name.isdecimal()]
        for workspace_id in workspace_ids
    }
    return {workspace_id: max(epochs) for workspace_id, epochs in found.items() if epochs}
