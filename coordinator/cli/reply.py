"""Views of the frames of one message: text that grows while it is produced, or one JSON object a line."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, Protocol

from chronicle.cli_kit.hints import with_hint
from chronicle.cli_kit.terminal import json_text, say, shown, write, write_json
from chronicle.cli_kit.times import iso
from coordinator.cli.exits import ExitCode, exit_code_of_frame
from coordinator.cli.hints import HINTS
from podium.agent import commands
from podium.turn.stream import without_size

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["JsonReply", "ReplyView", "TextReply", "Waiting", "outcome"]


_OWN: Final = "its sender took it back"
"""The reason in the frame of a message that its own sender cancelled."""


class Waiting(Protocol):
    """Shows what the command waits for, such as a spinner."""

    def show(self, text: str, *, line: bool) -> None:
        """Replace the text; with ``line`` it is printed where there is no spinner."""
        ...

    def clear(self) -> None:
        """Remove it."""
        ...


class ReplyView(Protocol):
    """Shows one message's frames, in order."""

    def show(self, frame: dict[str, Any]) -> None:
        """Show one frame."""
        ...

    def refuse(self, error: dict[str, str]) -> None:
        """Show that the message was refused, and why: ``{"type", "message"}``."""
        ...

    def leave(self, message_id: str, error: dict[str, str]) -> None:
        """Show that the message stays in the inbox because of an error, which ends the command."""
        ...

    def break_off(self) -> None:
        """Put the cursor at the start of a line, before other output."""
        ...


class JsonReply:
    """One frame a line, as clients get it."""

    def show(self, frame: dict[str, Any]) -> None:
        """Show one frame."""
        write_json(without_size(frame))

    def refuse(self, error: dict[str, str]) -> None:
        """Show a terminal frame for the refused message, without a message id: each message has a terminal frame."""
        write_json({"type": "error", "message_id": None, "error": error, "parked": False})

    def leave(self, message_id: str, error: dict[str, str]) -> None:
        """Show the error as the message's terminal frame."""
        write_json({"type": "error", "message_id": message_id, "error": error, "parked": False, "pending": True})

    def break_off(self) -> None:
        """Nothing to do: a frame is a whole line."""


class TextReply:
    """The replies' text, and the message's result as one line of JSON, on stdout; everything else on stderr.

    Args:
        waiting: shows what the command waits for; it is cleared before each output.
        name: the agent's address.
        log: the file with the agent's tracebacks, which the message about a failed turn names.
    """

    def __init__(self, waiting: Waiting, name: str, log: Path | None = None) -> None:
        self._waiting = waiting
        self._name = name
        self._log = log
        self._queued = False
        self._written: dict[str, int] = {}
        """Characters shown of each reply in this attempt."""
        self._artifacts: list[dict[str, Any]] = []
        """Artifacts of this attempt; they can be fetched after its commit."""
        self._current: str | None = None
        """The reply whose text ends at the cursor."""
        self._in_line = False

    def show(self, frame: dict[str, Any]) -> None:
        """Show one frame. Types that this release does not know are ignored."""
        match frame["type"]:
            case "accepted" | "queued":
                self._wait(frame.get("before", 0))
            case "agent_start" if frame.get("reloaded"):
                code = frame["code"]
                edited = shown(code.get("file", code["source"]))  # a server tells no path
                self._say(f"{self._name} runs edited code: {edited} as it is now ({code['stamp']})")
            case "turn_start":
                if self._written:  # it ended with its activation, and is not counted
                    self._say("The attempt was begun anew; its output so far does not count.")
                self._begin_attempt()
            case "message_update":
                self._write(frame["reply_id"], frame["delta"])
            case "message_end":
                reply_id, text = frame["reply_id"], frame["text"]
                self._write(reply_id, text[self._written.get(reply_id, 0) :])
                self.break_off()
            case "event" if (line := _of_command(frame)) is not None:
                if line:
                    self._say(line)
            case "event":
                self._say(f"[{frame['name']}] {json_text(frame.get('data'))}")
            case "artifact":
                self._artifacts.append(frame)
            case "turn_retry":
                lost = " Its output does not count." if self._written else ""
                self._say(f"attempt {frame['attempt']} failed: {_reason(frame)}.{lost} Trying again.")
                self._begin_attempt()
            case "error":
                self._say(_failure(frame, self._log))
            case "tool_decision_pending":
                run = frame["message_id"]
                self._say(f"{frame['reason']}\nIt waits for a decision{_until(frame)}: podium resolve {run} JSON")
                self._say(f"podium link {run} lets somebody without a key decide.")
            case "turn_paused" if frame["kind"] == "sleep":
                self._say(f"{self._name} sleeps{_until(frame)}, and goes on then.")
            case "turn_end":
                self.break_off()
                if "data" in frame:
                    self._waiting.clear()
                    write(f"{json_text(frame['data'])}\n")
                for found in self._artifacts:
                    kind, size = found["media_type"], found["size"]
                    self._say(f"[{found['name']}] {kind}, {size} bytes: podium artifact {found['artifact_id']}")
            case _:
                pass

    def refuse(self, error: dict[str, str]) -> None:
        """Say that the message was refused."""
        self._say(f"not sent: {with_hint(error['message'], HINTS.hint_by_name(error['type']))}")

    def leave(self, message_id: str, error: dict[str, str]) -> None:  # noqa: ARG002
        """End the line: the error ends the command, and its notes say where the message is."""
        self.break_off()

    def break_off(self) -> None:
        """End the current line of text."""
        self._waiting.clear()
        if self._in_line:
            write("\n")
            self._in_line = False

    def _begin_attempt(self) -> None:
        self._written.clear()
        self._artifacts.clear()

    def _wait(self, before: int) -> None:
        """Show the number of messages before this one."""
        if before:
            self._queued = True
            self._waiting.show(f"{self._name} … {before} before yours", line=True)
        elif self._queued:
            self._waiting.show(f"{self._name} … yours is next", line=True)

    def _write(self, reply_id: str, text: str) -> None:
        if not text:
            return
        if reply_id != self._current:
            self.break_off()  # Two concurrent replies never share a line.
        self._waiting.clear()
        self._current = reply_id
        self._written[reply_id] = self._written.get(reply_id, 0) + len(text)
        self._in_line = not text.endswith("\n")
        write(shown(text))

    def _say(self, text: str) -> None:
        self.break_off()
        say(text)


def _of_command(event: dict[str, Any]) -> str | None:
    """Return what is said of a command of the agent; empty for nothing, ``None`` for an event of another kind."""
    match event:
        case {"name": commands.COMMAND_STARTED, "data": {"argv": [*argv]}}:
            return f"$ {shlex.join(map(str, argv))}"
        case {"name": commands.COMMAND_OUTPUT, "data": {"text": str(text)}}:
            return text.removesuffix("\n")
        case {"name": commands.COMMAND_ENDED, "data": {"status": int(status), "limit": str() | None as limit}}:
            over = f", as it was over its limit of {limit}" if limit else ""
            return f"it ended with status {status}{over}" if status or over else ""
    return None


def outcome(frame: dict[str, Any], before: ExitCode) -> ExitCode:
    """Return the exit code of a terminal frame; ``before`` for any other frame."""
    match frame["type"]:
        case "turn_end":
            return ExitCode.OK
        case "turn_paused":
            return ExitCode.RUN_PAUSED
        case "error":
            return exit_code_of_frame(frame["error"]["type"])
        case _:
            return before


def _until(frame: dict[str, Any]) -> str:
    return f" until {iso(frame['expires'])}" if frame["expires"] is not None else ""


def _failure(frame: dict[str, Any], log: Path | None) -> str:
    if exit_code_of_frame(frame["error"]["type"]) is ExitCode.TURN_CANCELLED:
        why = _message(frame["error"])
        return f"cancelled: {why}" if why and why != _OWN else "cancelled: nothing of this turn was kept"
    parked = " The message is parked; podium inbox shows it." if frame.get("parked") else ""
    more = f"\nThe agent's log says more: {log}" if log is not None and _has_text(log) else ""
    return f"failed: {_reason(frame)}. State and files are as before it.{parked}{more}"


def _has_text(log: Path) -> bool:
    try:
        return log.stat().st_size > 0
    except OSError:  # There is no log.
        return False


def _reason(frame: dict[str, Any]) -> str:
    """Return the type and first line of a frame's error, and the hook that failed if that was not ``on_message``."""
    error, hook = frame["error"], frame.get("hook")
    where = "" if hook in (None, "on_message") else f"{hook}: "
    message = _message(error)
    reason = f"{where}{error['type']}: {message}" if message else f"{where}{error['type']}"
    return with_hint(reason, HINTS.hint_by_name(error["type"]))


def _message(error: dict[str, Any]) -> str:
    lines = str(error.get("message") or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else ""
