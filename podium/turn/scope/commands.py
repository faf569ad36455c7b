"""Commands that a hook runs in a sandbox, as steps of its turn."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from blake3 import blake3

from podium.agent.commands import COMMAND_ENDED, COMMAND_OUTPUT, COMMAND_STARTED, Ran
from podium.sandbox.policy import Policy
from podium.turn.scope.command_output import CommandOutput
from podium.turn.steps.calling import StepCall
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
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
        if not step or current_step() is not None:
            return Ran.from_json(await self._ended(command, on_output))

        async def ended(*_: object) -> JsonObject:
            return await self._ended(command, on_output)

        arguments = (command.words, os.fspath(command.cwd), {**(command.env or {})}, blake3(command.input).hexdigest())
        return Ran.from_json(cast("JsonObject", await self._steps.run(StepCall(command.title, ended, arguments))))

    async def _ended(self, command: Command, on_output: OnOutput | None) -> JsonObject:
        """Run a command to its end."""
        from podium.sandbox.running import run  # noqa: PLC0415  for agents that run commands only

        turn = self._hook.turn
        running = current_step()
        command_id = running.key if running is not None else command.title
        root = await turn.env.run_blocking(lambda: turn.workspace.root)
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
