"""A conversation with one agent: messages are sent in order, replies are shown while they are produced.

The first Ctrl-C during a reply asks the service to cancel the message; a second one ends the command without waiting.
Either way an accepted message is durable.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from chronicle.cli_kit.progress import Progress
from chronicle.cli_kit.terminal import say
from coordinator.cli.exits import ExitCode, exit_code
from coordinator.cli.line_input import Prompt, interrupts_handled_by
from coordinator.cli.reply import JsonReply, TextReply, outcome
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from coordinator.cli.line_input import LineSource
    from coordinator.cli.reply import ReplyView
    from coordinator.service.client import AgentRef
    from podium.errors import PodiumError

__all__ = ["Chat", "Sender"]


_FOR_NOW: Final = frozenset({"AgentBusy", "InboxFull"})
"""Refusals of one message after which the next may be accepted."""
_WAITS: Final = (
    "{message_id} waits in the inbox of {agent} and is handled before newer messages.\n"
    "podium retry {agent} {message_id} retries it, podium drop {agent} {message_id} removes it."
)
"""The note about an accepted message whose agent could not be woken."""
_MAY_WAIT: Final = (
    "{message_id} waits in the inbox of {agent} unless it was handled meanwhile; podium inbox {agent} shows what waits."
)
"""The note about an accepted message after the connection to the service was lost."""


class Sender(Protocol):
    """Client of a service or of a gateway, as a conversation needs it."""

    def send(
        self, agent: AgentRef, key: str, message: dict[str, Any], *, when_busy: BusyPolicy
    ) -> AsyncIterator[dict[str, Any]]:
        """Admit a message and yield its frames."""
        ...

    async def cancel(self, agent: str, message_id: str) -> object:
        """Cancel a message."""
        ...


class Chat:
    """A conversation with one agent.

    Args:
        json: show frames as JSON instead of text.
        when_busy: the policy if the agent is busy with another message.
        log: the agent's log file, which the message about a failed turn names.
    """

    def __init__(
        self,
        client: Sender,
        agent: AgentRef,
        key: str,
        *,
        json: bool,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
        log: Path | None = None,
    ) -> None:
        self._client = client
        self._agent = agent
        self._key = key
        self._json = json
        self._when_busy = when_busy
        self._log = log
        self._interrupted = False

    async def send_all(self, texts: Sequence[str]) -> ExitCode:
        """Send messages in order, each after the reply to the one before; Ctrl-C drops those that were not sent.

        Returns:
            the exit code of the first message that failed.
        """
        first = ExitCode.OK
        for number, text in enumerate(texts, start=1):
            code = await self.send(text)
            if code is not ExitCode.OK and len(texts) > 1:
                say(f"that was message {number} of {len(texts)}")
            if self._interrupted:
                return ExitCode.INTERRUPTED
            first = first or code
        return first

    async def converse(self, lines: LineSource) -> ExitCode:
        """Send each line as a message until the input ends; blank lines are skipped.

        Returns:
            the exit code of the first message that failed; at a prompt `ExitCode.OK`, as the user saw the failure.
        """
        first = ExitCode.OK
        while (line := await lines.next()) is not None:
            if line.strip():
                code = await self.send(line)
                first = first or code
        return ExitCode.OK if isinstance(lines, Prompt) else first

    async def send(self, text: str) -> ExitCode:
        """Send a text and show all its frames."""
        return await self.send_message({"text": text})

    async def send_message(self, message: dict[str, Any]) -> ExitCode:
        """Send a message and show all its frames."""
        name = f"{self._agent.agent_type}/{self._key}"
        with Progress(lines=False) as waiting:
            waiting.show(f"{name} …")
            view: ReplyView = JsonReply() if self._json else TextReply(waiting, name, self._log)
            async with asyncio.TaskGroup() as tasks:
                exchange = _Exchange(self._client, name, tasks, view)
                with interrupts_handled_by(exchange.interrupt):
                    frames = self._client.send(self._agent, self._key, message, when_busy=self._when_busy)
                    code = await exchange.run(frames)
        self._interrupted = exchange.interrupted
        return code


class _Exchange:
    """One message in flight, and its cancellation by Ctrl-C."""

    def __init__(self, client: Sender, agent: str, tasks: asyncio.TaskGroup, view: ReplyView) -> None:
        self._client = client
        self._agent = agent
        self._tasks = tasks
        self._view = view
        self._message_id: str | None = None
        self.interrupted = False

    async def run(self, frames: AsyncIterator[dict[str, Any]]) -> ExitCode:
        """Show the frames; return the exit code of the last one, or of the refusal."""
        # Already imported where they are raised.
        from coordinator.client.errors import ClientError, Unreachable  # noqa: PLC0415
        from coordinator.service.client import ServiceError, ServiceRefused  # noqa: PLC0415

        code = ExitCode.UNAVAILABLE  # Unless a terminal frame arrives.
        try:
            async for frame in frames:
                if frame["type"] == "accepted":
                    self._message_id = frame["message_id"]
                    if self.interrupted:
                        self._cancel()
                self._view.show(frame)
                code = outcome(frame, code)
        except (ServiceError, Unreachable) as lost:
            if self._message_id is not None:
                self._leave(self._message_id, lost, type(lost).__name__, _MAY_WAIT)
            raise
        except (ServiceRefused, ClientError) as refusal:
            if refusal.kind in _FOR_NOW:
                self._view.refuse({"type": refusal.kind, "message": str(refusal)})
                return exit_code(refusal)
            if self._message_id is not None:
                self._leave(self._message_id, refusal, refusal.kind, _WAITS)
            raise
        return code

    def _leave(self, message_id: str, error: PodiumError, kind: str, hint: str) -> None:
        """Report that an accepted message stays in the inbox, with the commands that act on it."""
        self._view.leave(message_id, {"type": kind, "message": str(error)})
        error.add_note(hint.format(agent=self._agent, message_id=message_id))

    def interrupt(self) -> bool:
        """Cancel at the first Ctrl-C; leave the second one to the previous handler."""
        if self.interrupted:
            return False
        self.interrupted = True
        self._view.break_off()
        say("cancelling the reply; Ctrl-C again exits")
        if self._message_id is not None:
            self._cancel()
        return True

    def _cancel(self) -> None:
        assert self._message_id is not None
        self._tasks.create_task(self._ask_to_cancel(self._message_id), name=f"cancel {self._message_id}")

    async def _ask_to_cancel(self, message_id: str) -> None:
        from coordinator.client.errors import RequestConflict  # noqa: PLC0415 - already imported where they are raised
        from coordinator.service.client import ServiceRefused  # noqa: PLC0415

        try:
            await self._client.cancel(self._agent, message_id)
        except (ServiceRefused, RequestConflict) as refusal:  # The turn ended first.
            say(f"not cancelled: {refusal}")
