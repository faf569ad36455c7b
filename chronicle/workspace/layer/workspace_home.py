"""The directory of a workspace's layers on a node, and its lock."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from chronicle.errors import Conflict, InvalidInput
from chronicle.system.locks import try_lock, unlock

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.workspace.port import LayerSpec

__all__ = ["MAX_WORKSPACE_ID", "lock_workspace", "unlock_workspace", "workspace_home"]

MAX_WORKSPACE_ID: Final = 128
"""Characters of a workspace's id, at most."""
_WORKSPACE_ID: Final = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{MAX_WORKSPACE_ID - 1}}}")


def workspace_home(spec: LayerSpec) -> Path:
    """Return the directory of a workspace's layers.

    Raises:
        InvalidInput: the id is invalid.
    """
    if not _WORKSPACE_ID.fullmatch(spec.workspace_id):
        raise InvalidInput(
            f"{spec.workspace_id!r} cannot be a workspace's id: 1–{MAX_WORKSPACE_ID} of A-Z a-z 0-9 _ . -, not "
            "starting with a dot"
        )
    return spec.layers / spec.workspace_id


def lock_workspace(home: Path) -> int:
    """Lock a workspace's layers and return the lock's descriptor; `unlock_workspace` or the end of the process unlocks.

    Raises:
        Conflict: another process holds it.
    """
    fd = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not try_lock(fd):
        os.close(fd)
        raise Conflict(f"another process has {home} open; it must end before the workspace is opened here")
    return fd


def unlock_workspace(fd: int) -> None:
    """Unlock, also where a child that was forked meanwhile still has the descriptor."""
    unlock(fd)
    os.close(fd)
