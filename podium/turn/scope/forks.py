"""Forks of the workspace, on which commands run: a second workspace on the same base, moved to the tree of the files.

The tree that is sealed there is, like one of the workspace, a tree on top of the base: so the workspace can move to it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from chronicle.errors import Conflict, NotFound
from chronicle.ids import BlobId
from chronicle.workspace.port import TreeRef
from chronicle.workspace.trees.tree_diff import change_object, changes, render
from podium.agent.commands import FileChange
from podium.blocking import to_its_end
from podium.errors import ContextMisuse
from podium.turn.ports import WorkspaceRequest
from podium.turn.steps.calling import StepCall
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from chronicle.canonical import JsonObject
    from chronicle.workspace.port import Workspace
    from podium.turn.scope.open_turn import OpenTurn
    from podium.turn.scope.steps import Steps

__all__ = ["ForkTrees", "TurnFork", "opened_fork"]

_EPOCH = 1
"""Of a fork's layer, which nobody opens again."""


@dataclass(frozen=True, slots=True)
class ForkTrees:
    """The trees of a fork; both are sealed on top of the base of the workspace."""

    since: TreeRef
    """The files of which it was made."""
    tree: TreeRef
    """What it is now."""

    def to_json(self) -> JsonObject:
        """Return them for the record."""
        return {"since": [self.since.tree_id, self.since.oplog_id], "tree": [self.tree.tree_id, self.tree.oplog_id]}

    @classmethod
    def from_json(cls, found: JsonObject) -> ForkTrees:
        """Return what a record has."""
        refs = cast("dict[str, list[str]]", found)
        return cls(*(TreeRef(BlobId(refs[key][0]), BlobId(refs[key][1])) for key in ("since", "tree")))


@asynccontextmanager
async def opened_fork(turn: OpenTurn) -> AsyncIterator[tuple[Workspace, TreeRef]]:
    """Open a fork of a turn's workspace as it is now, and remove it at the end.

    Yields:
        the fork, and the tree of which it was made.

    Raises:
        ContextMisuse: nothing here opens forks.
        ChronicleError: the files could not be sealed, or the fork not be opened.
    """
    env, workspace = turn.env, turn.workspace
    if env.open_fork is None:
        raise ContextMisuse("nothing opens forks of workspaces here, so no command can run on one")
    # The workspace's path, which is claimed when it is opened, leads to what a killed process leaves of its forks.
    await env.run_blocking(lambda: workspace.root)
    if turn.steps is not None:
        since = await turn.steps.seal()
    else:
        since = await to_its_end(env.run_blocking(workspace.seal), "seal for a fork")
    opening = env.open_fork(WorkspaceRequest(turn.address, workspace.base, _EPOCH, turn.number))
    opened = ExitStack()
    try:
        fork = await to_its_end(env.run_blocking(opened.enter_context, opening), "open a fork")
        await to_its_end(env.run_blocking(fork.move_to, since), "fill a fork")
        yield fork, since
    finally:
        await to_its_end(env.run_blocking(opened.close), "close a fork")


class TurnFork:
    """What a command has made of a fork; a `podium.agent.commands.Fork`.

    Args:
        title: the name of the command's step.
        step: whether it was a step.
    """

    def __init__(self, turn: OpenTurn, steps: Steps, trees: ForkTrees, title: str, *, step: bool) -> None:
        self._turn = turn
        self._steps = steps
        self._trees = trees
        self._title = title
        self._step = step

    async def changes(self) -> tuple[FileChange, ...]:
        """Return what has changed, by path."""
        env, trees = self._turn.env, self._trees
        found = await env.run_blocking(changes, env.blobs, trees.since.tree_id, trees.tree.tree_id)
        return tuple(_shown(cast("dict[str, Any]", change_object(each))) for each in found)

    async def diff(self, paths: Sequence[str]) -> str:
        """See `podium.agent.commands.Tried.diff`."""
        self._turn.check_open()
        env, trees, wanted = self._turn.env, self._trees, {os.fsencode(path) for path in paths}

        def text() -> str:
            found = changes(env.blobs, trees.since.tree_id, trees.tree.tree_id)
            chosen = [each for each in found if not wanted or each.path in wanted]
            missing = wanted - {each.path for each in chosen}
            if missing:
                raise NotFound(f"the command has not changed {os.fsdecode(min(missing))!r}; changes names what it has")
            return b"".join(render(env.blobs, chosen)).decode(errors="replace")

        return await env.run_blocking(text)

    async def keep(self) -> None:
        """See `podium.agent.commands.Tried.keep`."""
        self._turn.check_open()
        if not self._step or current_step() is not None:
            await self._take_over()
            return

        async def take_over(*_: object) -> None:
            await self._take_over()

        await self._steps.run(StepCall(f"keep {self._title}", take_over, (self._trees.tree.tree_id,)))

    async def _take_over(self) -> None:
        turn = self._turn
        try:
            if turn.steps is not None:
                await turn.steps.alone(self._move)
            else:
                await to_its_end(turn.env.run_blocking(self._move), "replace the files")
        except Conflict as error:
            raise Conflict(
                f"what {self._title!r} did on a fork cannot be kept, as {error}; run it again, on a new fork"
            ) from error

    def _move(self) -> None:
        workspace = self._turn.workspace
        if workspace.seal() != self._trees.since:
            raise Conflict("the files of the agent have changed since")
        workspace.move_to(self._trees.tree)


def _shown(change: dict[str, Any]) -> FileChange:
    return FileChange(change["change"], change["path"], change["old_size"], change["new_size"], change.get("old_path"))
