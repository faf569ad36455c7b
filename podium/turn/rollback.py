"""Rolling a workspace back after a failed attempt, whose tree is kept for its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from chronicle.errors import ChronicleError, OverQuota

if TYPE_CHECKING:
    from chronicle.workspace.port import TreeRef, Workspace
    from podium.address import Address
    from podium.turn.ports import Environment

__all__ = ["roll_back", "seal_failed_attempt"]

_log = structlog.stdlib.get_logger("podium.turn.rollback")


async def seal_failed_attempt(env: Environment, workspace: Workspace, address: Address) -> TreeRef | None:
    """Seal the files of a failed attempt; return their tree, ``None`` if they could not be kept."""
    try:
        return await env.run_blocking(workspace.seal)
    except OverQuota as over:
        return over.kept
    except (ChronicleError, OSError) as problem:
        _log.warning("failed_tree_not_kept", agent_id=str(address), error=str(problem))
        return None


async def roll_back(env: Environment, workspace: Workspace) -> None:
    """Put the files back to the last commit; on a full disk, with the space that is reserved for that.

    Raises:
        ChronicleError, OSError: they could not be put back.
    """
    try:
        await env.run_blocking(workspace.rollback)
    except (ChronicleError, OSError):
        if not await env.run_blocking(env.store.reserve.free):
            raise
        await env.run_blocking(workspace.rollback)
