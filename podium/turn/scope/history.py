"""The history of the workspace, as a hook reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from chronicle.errors import WrongType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.workspace.port import Iteration, Workspace
    from podium.turn.scope.open_turn import RunningHook

__all__ = ["FileHistory"]


class FileHistory:
    """The versions of the workspace's files."""

    def __init__(self, hook: RunningHook) -> None:
        self._turn = hook.turn

    async def of(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations."""
        return await self._turn.env.run_blocking(self._files(path).history, path)

    async def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path at an iteration."""
        return await self._turn.env.run_blocking(self._files(path).at, path, iteration)

    def _files(self, path: object) -> Workspace:
        if not isinstance(path, str):
            raise WrongType(f"a path of the workspace is a text such as 'notes/today.txt', not {type(path).__name__}")
        self._turn.check_open()
        return self._turn.workspace
