"""Showing the frames of one message: as text that grows while it is produced, or as one JSON object a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from coordinator.cli.exits import ExitCode, exit_code_of_frame
from coordinator.cli.terminal import json_text, say, shown, write, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["JsonReply", "ReplyView", "TextReply", "outcome"]


class ReplyView(Protocol):
    """Shows one message's frames, in order."""

    def show(self, frame: dict[str, Any]) -> None:
        """Show one frame."""
        ...

    def break_off(self) -> None:
        """Put the cursor at the start of a line, because something else is to be said."""
        ...


class JsonReply:
    """One frame a line, as it came."""

    def show(self, frame: dict[str, Any]) -> None:
        """Show one frame."""
        write_json(frame)

    def break_off(self) -> None:
        """Nothing to do: a frame is a whole line."""


class TextReply:
    """The replies' text on stdout, everything else on stderr.

    Args:
        before_output: called before each output; stops a spinner.
        log: where the agent's tracebacks are, to be named when a turn failed.
    """

    def __init__(self, before_output: Callable[[], None], log: Path | None = None) -> None:
        self._before_output = before_output
        self._log = log
        self._written: dict[str, int] = {}
        """Characters of each reply that were shown in this attempt."""
        self._current: str | None = None
        """The reply whose text ends where the cursor is."""
        self._in_line = False

    def show(self, frame: dict[str, Any]) -> None:
        """Show one frame. Types that this version does not know are passed over."""
        match frame["type"]:
            case "message_update":
                self._write(frame["reply_id"], frame["delta"])
            case "message_end":
                reply_id, text = frame["reply_id"], frame["text"]
                self._write(reply_id, text[self._written.get(reply_id, 0) :])
                self.break_off()
            case "event":
                self._say(f"[{frame['name']}] {json_text(frame.get('data'))}")
            case "turn_retry":
                lost = " What it had said does not count." if self._written else ""
                self._say(f"attempt {frame['attempt']} failed: {_reason(frame['error'])}.{lost} Trying again.")
                self._written.clear()
            case "error":
                self._say(_failure(frame, self._log))
            case "turn_end":
                self.break_off()
            case _:
                pass

    def break_off(self) -> None:
        """End the line that text was written to."""
        self._before_output()
        if self._in_line:
            write("\n")
            self._in_line = False

    def _write(self, reply_id: str, text: str) -> None:
        if not text:
            return
        if reply_id != self._current:
            self.break_off()  # two replies at once: never in one line
        self._before_output()
        self._current = reply_id
        self._written[reply_id] = self._written.get(reply_id, 0) + len(text)
        self._in_line = not text.endswith("\n")
        write(shown(text))

    def _say(self, text: str) -> None:
        self.break_off()
        say(text)


def outcome(frame: dict[str, Any], before: ExitCode) -> ExitCode:
    """Return what a terminal frame means for the exit code; ``before`` for any other frame."""
    match frame["type"]:
        case "turn_end":
            return ExitCode.OK
        case "error":
            return exit_code_of_frame(frame["error"]["type"])
        case _:
            return before


def _failure(frame: dict[str, Any], log: Path | None) -> str:
    if exit_code_of_frame(frame["error"]["type"]) is ExitCode.TURN_CANCELLED:
        return "cancelled: nothing of this turn was kept"
    parked = " The message is set aside (podium ps counts it as parked)." if frame.get("parked") else ""
    more = f"\nThe agent's log says more: {log}" if log is not None else ""
    return f"failed: {_reason(frame['error'])}. State and files are as before it.{parked}{more}"


def _reason(error: dict[str, Any]) -> str:
    """Return an error's type and first line."""
    lines = str(error.get("message") or "").strip().splitlines()
    return f"{error['type']}: {lines[0].rstrip('.')}" if lines else str(error["type"])
