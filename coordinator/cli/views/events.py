"""Events and steps, a line each."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from chronicle.cli_kit.terminal import json_text, one_line, write_json, write_line
from chronicle.cli_kit.times import iso
from podium.events import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["event_line", "gist", "parts_text", "show_steps", "write_event"]

MAX_STEPS_SHOWN: Final = 8
"""Steps of a turn in its line; JSON has all of them."""


def write_event(event: Mapping[str, Any], said: str = "") -> None:
    """Write an event as a line, on a terminal at most as wide as that.

    Args:
        said: texts of messages that the event only names.
    """
    line = event_line(event, said)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        line = line if len(line) <= width else line[: width - 1] + "…"
    write_line(line)


def event_line(event: Mapping[str, Any], said: str = "") -> str:
    """Return an event as a line; see `write_event`."""
    summary = gist(event["type"], event["payload"])
    what = f"{summary} — {said}" if said else summary
    return f"{event['seq']:>5}  {iso(event['ts'])}  turn {event['turn']:<4}  {event['type']:<17}  {one_line(what)}"


def write_step(step: Mapping[str, Any]) -> None:
    """Write an ended step of a pending or parked message as a line, below the events of a log."""
    lasted = f"{step['ended'] - step['started']} ms"
    what = f"{step['number']}. {step['key']} of {step['message_id']} ({lasted}, result of {step['result_bytes']} bytes)"
    write_line(f"{'-':>5}  {iso(step['ended'])}  {'':<9}  {'step':<17}  {one_line(what)}")


def show_steps(steps: Iterable[Mapping[str, Any]], seen: set[tuple[str, int]], *, json: bool) -> None:
    """Write the steps that are not in ``seen``, and put them there."""
    for step in steps:
        if (step["message_id"], step["number"]) not in seen:
            seen.add((step["message_id"], step["number"]))
            if json:
                write_json({"type": "step", **step})
            else:
                write_step(step)


def gist(event_type: str, payload: Any) -> str:
    """Return the summary of an event: the text of a message, the patch of a turn, the error of a failure.

    Args:
        payload: ``None`` if it was erased.
    """
    match event_type, payload:
        case _, None:
            return "(erased)"
        case "user_message", {"sender": sender, "message": message}:
            text = message["text"] if list(message) == ["text"] else None
            said = text if isinstance(text, str) else json_text(message)
            return f"{origin}: {said}" if (origin := _origin(sender, payload.get("reminder"))) else said
        case "assistant_message", {"text": str(text), "partial": True}:
            return f"{text} (interrupted)"
        case "assistant_message", {"text": str(text)}:
            return text
        case "artifact.added", {"artifact_id": artifact_id, "name": name, "media_type": kind, "size": size}:
            return f"{name} ({kind}, {size} bytes) {artifact_id}"
        case "tool_result", {"name": name, "arguments": arguments, "output": output}:
            return f"{name} {json_text(arguments)}: {output}"
        case "message.answered", {"data": data}:
            return json_text(data)
        case "model.called", {"profile": profile, "status": status, "answer": {"usage": usage}}:
            tokens = f"{usage['input_tokens']} tokens ({usage['cached_tokens']} cached), {usage['output_tokens']} back"
            return f"{profile}: {status}, {tokens}"
        case "agent.created", {"state": state}:
            return json_text(state)
        case "turn.committed", {"state": {"patch": patch}, "cause": cause}:
            after = f" after {_steps_text(payload['steps'])}" if "steps" in payload else ""
            return f"{json_text(patch) if cause == 'message' else f'({cause}) {json_text(patch)}'}{after}"
        case "agent.forked", {"from": {"agent": source, "turn": turn}}:
            return f"continues {source} from turn {turn}"
        case "agent.rewound", {"to": turn, "only": only, "state": {"patch": patch}}:
            return f"{parts_text([only] if isinstance(only, str) else only)} as after turn {turn}: {json_text(patch)}"
        case "turn.failed", {
            "error": {"type": kind, "message": message},
            "attempt": attempt,
            "hook": hook,
            "parked": parked,
        }:
            where = "" if hook in (None, "on_message") else f"{hook}: "
            return f"attempt {attempt}{', parked' if parked else ''}: {where}{kind}: {message}"
        case "turn.paused", {"message_id": message_id, "call_id": call_id, "reason": reason}:
            return f"{message_id}: waits at {call_id}{f': {reason}' if reason else ''}"
        case "turn.cancelled", {"message_id": message_id, "policy": str(policy), "by": by}:
            return f"{message_id}: {by} took its place ({policy})"
        case "turn.cancelled", {"message_id": message_id}:
            return f"{message_id}: cancelled"
        case "agent.detached" | "agent.snapshot", {"state": state}:
            return json_text(state)
        case _:
            return json_text(payload)


def _origin(sender: str | None, reminder: Mapping[str, Any] | None) -> str:
    """Return who sent a message; empty for a client."""
    if reminder is None:
        return f"from {sender}" if sender else ""
    missed = f", {reminder['missed']} missed" if reminder["missed"] else ""
    return f"reminder {reminder['name']} of {iso(reminder['due_ms'])}{missed}"


def parts_text(only: Sequence[str] | None) -> str:
    """Return the parts that a rewind restored, such as ``state, files and transcript``, which is all of them."""
    *others, last = only or PARTS
    return f"{', '.join(others)} and {last}" if others else last


def _steps_text(summary: Mapping[str, Any]) -> str:
    """Return the steps of a turn, such as ``2 steps (price#1 12 ms, mail#1 failed: ValueError)``."""
    steps = summary["steps"]
    shown = [_step_text(step) for step in steps[:MAX_STEPS_SHOWN]]
    if len(steps) > MAX_STEPS_SHOWN:
        shown.append(f"{len(steps) - MAX_STEPS_SHOWN} more")
    return f"{len(steps)} step{'s' if len(steps) > 1 else ''} ({', '.join(shown)})"


def _step_text(step: Mapping[str, Any]) -> str:
    lasted = f"{step['key']} {step['ended'] - step['started']} ms"
    if step["status"] != "done":
        return f"{lasted} {step['status']}{': ' + step['error'] if 'error' in step else ''}"
    call = step.get("model_call", {})
    return f"{lasted}, {call['output_tokens']} tokens" if "output_tokens" in call else lasted
