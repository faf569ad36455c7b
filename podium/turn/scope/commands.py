"""Commands that a hook runs in a sandbox, as steps of its turn."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import fields
from typing import TYPE_CHECKING, cast

from blake3 import blake3

from podium.agent.commands import COMMAND_ENDED, COMMAND_OUTPUT, COMMAND_STARTED, Ran, Tried
from podium.blocking import to_its_end
from podium.sandbox.policy import Policy
from podium.turn.scope.command_output import CommandOutput
from podium.turn.steps.calling import StepCall
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.canonical import JsonObject
    from podium.agent.commands import Command, OnOutput
    from podium.sandbox.on_rung import Stream
    from podium.turn.scope.artifacts import Artifacts
    from podium.turn.scope.open_turn import RunningHook
    from podium.turn.scope.replies import Replies
    from podium.turn.scope.steps import Steps

__all__ = ["Commands"]


class Commands:
    """The commands of one hook."""

    def __init__(self, hook: RunningHook, replies: Replies, steps: Steps, artifacts: Artifacts) -> None:
        self._hook = hook
        self._replies = replies
        self._steps = steps
        self._artifacts = artifacts

    async def run(self, command: Command, on_output: OnOutput | None, *, step: bool) -> Ran:
        """Run a command, or return how it ended in an earlier attempt; see `AgentContext.run`."""
        self._hook.turn.check_open()

        async def ended(*_: object) -> JsonObject:
            return await (self._on_fork if command.on == "fork" else self._in_place)(command, on_output)

        if not step or current_step() is not None:
            found = await ended()
        else:
            words = (command.words, os.fspath(command.cwd), {**(command.env or {})}, blake3(command.input).hexdigest())
            arguments = words if command.on == "workspace" else (*words, command.on)
            found = cast("JsonObject", await self._steps.run(StepCall(command.title, ended, arguments)))
        return Ran.from_json(found) if command.on == "workspace" else await self._tried(command, found, step=step)

    async def _in_place(self, command: Command, on_output: OnOutput | None) -> JsonObject:
        """Run a command in the workspace."""
        turn = self._hook.turn
        return await self._ended(command, on_output, await turn.env.run_blocking(lambda: turn.workspace.root))

    async def _on_fork(self, command: Command, on_output: OnOutput | None) -> JsonObject:
        """Run a command on a fork of the workspace, and return how it ended with the trees of the fork."""
        from podium.turn.scope.forks import ForkTrees, opened_fork  # noqa: PLC0415  for agents that use forks only

        turn = self._hook.turn
        async with opened_fork(turn) as (fork, since):
            ran = await self._ended(command, on_output, fork.root)
            tree = await to_its_end(turn.env.run_blocking(fork.seal), "seal a fork")
        if (running := current_step()) is not None:
            running.note_tree(since)
            running.note_tree(tree)
        return {"ran": ran, "fork": ForkTrees(since, tree).to_json()}

    async def _tried(self, command: Command, found: JsonObject, *, step: bool) -> Tried:
        """Return how a command on a fork ended, with what it changed there."""
        from podium.turn.scope.forks import ForkTrees, TurnFork  # noqa: PLC0415  for agents that use forks only

        trees = ForkTrees.from_json(cast("JsonObject", found["fork"]))
        fork = TurnFork(self._hook.turn, self._steps, trees, command.title, step=step)
        ran = Ran.from_json(cast("JsonObject", found["ran"]))
        return Tried(
            **{each.name: getattr(ran, each.name) for each in fields(Ran)}, changes=await fork.changes(), fork=fork
        )

    async def _ended(self, command: Command, on_output: OnOutput | None, root: Path) -> JsonObject:
        """Run a command to its end, in the files at a path."""
        from podium.sandbox.running import run  # noqa: PLC0415  for agents that run commands only

        turn = self._hook.turn
        running = current_step()
        command_id = running.key if running is not None else command.title
        policy = command.policy(turn.sandbox or Policy(), root, turn.artifacts.limit_bytes)
        streams: dict[Stream, CommandOutput] = {
            stream: CommandOutput(f"{_file_name(command.title)}.{stream}.txt", turn.env)
            for stream in ("stdout", "stderr")
        }

        async def take(stream: Stream, piece: bytes) -> None:
            if not (text := await streams[stream].take(piece)):
                return
            if on_output is not None:
                await on_output(stream, text)
            else:
                await self._replies.emit(COMMAND_OUTPUT, {"command_id": command_id, "stream": stream, "text": text})

        with ExitStack() as at_end:
            for each in streams.values():
                at_end.callback(each.close)
            await self._replies.emit(COMMAND_STARTED, {"command_id": command_id, "argv": [*command.words]})
            ended = await run(command.words, policy, on_output=take, cwd=command.directory(root), stdin=command.input)
            stdout, stdout_artifact = await streams["stdout"].end(self._artifacts)
            stderr, stderr_artifact = await streams["stderr"].end(self._artifacts)
        told: JsonObject = {"status": ended.status, "limit": ended.limit, "rung": ended.rung}
        await self._replies.emit(COMMAND_ENDED, {"command_id": command_id, **told})
        return Ran(
            ended.status,
            stdout,
            stderr,
            ended.limit,
            ended.rung,
            tuple(os.fspath(path.relative_to(root)) for path in ended.restored),
            stdout_artifact,
            stderr_artifact,
        ).to_json()


def _file_name(title: str) -> str:
    return "".join(each if each.isalnum() or each in "-_." else "_" for each in title) or "command"
