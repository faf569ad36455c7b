"""The text of what commands show, from JSON objects: the same for a home on this machine and for a remote one."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from chronicle.cli_kit.changes import LETTERS
from chronicle.cli_kit.terminal import json_text, one_line, say, shown, write, write_json, write_line
from chronicle.cli_kit.times import ago, iso
from coordinator.cli.terminal import table
from podium.events import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "event_line",
    "gist",
    "parts_text",
    "show_agents",
    "show_artifacts",
    "show_diff",
    "show_file_changes",
    "show_inbox",
    "show_nodes",
    "show_outbox",
    "show_patch",
    "show_reminders",
    "show_text",
    "show_versions",
    "show_why",
    "text_of",
    "write_event",
]

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_CONTROLS_LEFT_OUT: Final = "(control characters were left out; redirect the output to get the bytes as they are)"


def show_agents(agents: Sequence[Mapping[str, Any]], now_ms: int) -> None:
    """Write agents as a table.

    Each is ``agent, status, turn, version, last_activity, pending, parked, isolation, memory``.
    """
    table(
        ("AGENT", "STATUS", "TURN", "VERSION", "LAST ACTIVITY", "PENDING", "PARKED", "ISOLATION", "MEMORY"),
        [
            (
                agent["agent"],
                agent["status"],
                str(agent["turn"]),
                str(agent["version"]),
                f"{iso(agent['last_activity'])} ({ago(now_ms - agent['last_activity'])})",
                str(agent["pending"]),
                str(agent["parked"]),
                agent["isolation"] or "",
                _size(agent["memory"]) if agent["memory"] is not None else "",
            )
            for agent in agents
        ],
    )


def _size(count: int) -> str:
    return f"{count / _MIB:.1f} MiB" if count >= _MIB else f"{count / 1024:.0f} KiB"


def show_why(why: Mapping[str, Any], now_ms: int) -> None:
    """Write what is known of an agent, a line for each fact; the first says what it waits for."""
    write_line(one_line(f"{why['agent']} is {why['status']}; it waits for {why['waits_for']}"))
    parked = f", {why['parked']} parked" if why["parked"] else ""
    facts: list[tuple[str, str | None]] = [
        ("turn", str(why["turn"])),
        ("inbox", f"{why['pending']} pending{parked}"),
        ("outbox", _of_outbox(why.get("outbox"), now_ms)),
        ("host", f"{why['host_id']}, isolation {why['isolation']}" if why["host_id"] else None),
        ("quarantine", why["quarantine"]),
        ("handles", why["message_id"]),
        ("lease", f"epoch {why['epoch']}, of {why['holder']}" if why["holder"] else None),
        ("class", why["problem"]),
    ]
    if why["failed_wakes"]:
        facts.append(("failed wakes", f"{why['failed_wakes']} in a row, the last one: {why['wake_error']}"))
    facts.append(("last death", why["last_death"]))
    if error := why["last_error"]:
        of = f" of {error['message_id']}" if error["message_id"] else ""
        when = ago(now_ms - error["at"])
        facts.append(("last error", f"{error['type']}: {error['message']} (attempt {error['attempt']}{of}, {when})"))
    for name, fact in facts:
        if fact is not None:
            write_line(one_line(f"  {name:<13} {fact}"))


def show_outbox(agent: str, outbox: Mapping[str, Any], now_ms: int) -> None:
    """Say which messages of other agents are not in an agent's inbox yet."""
    say(one_line(f"in the outbox for {agent}: {_of_outbox(outbox, now_ms)}"))


def _of_outbox(outbox: Mapping[str, Any] | None, now_ms: int) -> str | None:
    if outbox is None:
        return None
    held = f", held: {outbox['held_by']}" if outbox["held_by"] else ""
    return f"{outbox['messages']} to be delivered, the oldest of {ago(now_ms - outbox['oldest_at'])}{held}"


def show_nodes(nodes: Sequence[Mapping[str, Any]] | None) -> None:
    """Write nodes as a table; ``None`` if no service runs."""
    if nodes is None:
        say("no service is running; it has the nodes")
        return
    table(
        ("NODE", "STATUS", "AGENTS", "HOSTS", "WARM", "STARTING", "MOUNTS", "WORKSPACES", "CPUS", "MEMORY AVAILABLE"),
        [
            (
                node["node"],
                "ready" if node["problem"] is None else f"not ready: {node['problem']}",
                str(node["agents"]),
                str(node["assigned"]),
                str(node["warm"]),
                str(node["starting"]),
                str(node["mounts"]),
                node["presentation"],
                str(node["cpus"]),
                f"{node['memory_available'] / _GIB:.1f} of {node['memory'] / _GIB:.1f} GiB",
            )
            for node in nodes
        ],
    )


# -- messages ---------------------------------------------------------------------------------------------------------


def show_inbox(messages: Sequence[Mapping[str, Any]], now_ms: int) -> None:
    """Write messages of an inbox as a table."""
    headings = ("POSITION", "MESSAGE", "STATUS", "TRIES", "CAME", "FROM", "TEXT", "LAST ERROR")
    table(headings, [_message_row(message, now_ms) for message in messages])


def show_reminders(agent: str, reminders: Sequence[Mapping[str, Any]]) -> None:
    """Write the reminders of an agent as a table."""
    if not reminders:
        say(f"{agent} has set no reminder")
        return
    table(
        ("NAME", "DUE", "AGAIN", "MESSAGE"),
        [(each["name"], iso(each["due"]), _rule_text(each), text_of(each["message"] or None)) for each in reminders],
    )


def _rule_text(reminder: Mapping[str, Any]) -> str:
    if reminder["every_s"] is not None:
        return f"every {reminder['every_s']:g} s"
    return f"{reminder['cron']} ({reminder['tz']})" if reminder["cron"] is not None else ""


def text_of(message: Any) -> str:
    """Return the first line of a text message, the JSON of any other; empty for one that is not kept."""
    match message:
        case None:
            return ""
        case {"text": str(text), **rest} if not rest:
            first, *more = text.strip().splitlines() or [""]
            return f"{first} …" if more else first
        case _:
            return json_text(message)


def _message_row(message: Mapping[str, Any], now_ms: int) -> tuple[str, ...]:
    error = message["error"]
    return (
        str(message["position"]),
        message["message_id"],
        message["status"],
        str(message["attempts"]),
        ago(now_ms - message["admitted"]),
        message["sender"] or "-",
        text_of(message["message"]),
        f"{error['type']}: {error['message']}" if error else "-",
    )


# -- events -----------------------------------------------------------------------------------------------------------


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
            return f"from {sender}: {said}" if sender else said
        case "assistant_message", {"text": str(text), "partial": True}:
            return f"{text} (interrupted)"
        case "assistant_message", {"text": str(text)}:
            return text
        case "artifact.added", {"artifact_id": artifact_id, "name": name, "media_type": kind, "size": size}:
            return f"{name} ({kind}, {size} bytes) {artifact_id}"
        case "message.answered", {"data": data}:
            return json_text(data)
        case "agent.created", {"state": state}:
            return json_text(state)
        case "turn.committed", {"state": {"patch": patch}, "cause": cause}:
            count = payload["steps"]["count"] if "steps" in payload else 0
            after = f" after {count} step{'s' if count > 1 else ''}" if count else ""
            return f"{json_text(patch) if cause == 'message' else f'({cause}) {json_text(patch)}'}{after}"
        case "agent.forked", {"from": {"agent": source, "turn": turn}}:
            return f"continues {source} from turn {turn}"
        case "agent.rewound", {"to": turn, "only": only, "state": {"patch": patch}}:
            return f"{parts_text([only] if isinstance(only, str) else only)} as after turn {turn}: {json_text(patch)}"
        case "turn.failed", {"error": {"type": kind, "message": message}, "attempt": attempt, "parked": parked}:
            hook = payload.get("hook")  # Not in events of older releases.
            where = "" if hook in (None, "on_message") else f"{hook}: "
            return f"attempt {attempt}{', parked' if parked else ''}: {where}{kind}: {message}"
        case "turn.cancelled", {"message_id": message_id, "policy": str(policy), "by": by}:
            return f"{message_id}: {by} took its place ({policy})"
        case "turn.cancelled", {"message_id": message_id}:
            return f"{message_id}: cancelled"
        case "agent.detached" | "agent.snapshot", {"state": state}:
            return json_text(state)
        case _:
            return json_text(payload)


# -- files and state --------------------------------------------------------------------------------------------------


def show_versions(versions: Iterable[Mapping[str, Any]]) -> None:
    """Write the versions of a path as a table."""
    table(
        ("ITERATION", "TIME", "TURN", "OP", "SIZE", "HASH"),
        [
            (
                str(version["iteration"]),
                iso(version["timestamp"]),
                str(version["turn"]),
                version["op"],
                str(version["size"]),
                version["hash"][:16],
            )
            for version in versions
        ],
    )


def show_artifacts(artifacts: Iterable[Mapping[str, Any]]) -> None:
    """Write artifacts as a table."""
    table(
        ("ARTIFACT", "TURN", "TIME", "SIZE", "TYPE", "NAME"),
        [
            (
                artifact["artifact_id"],
                str(artifact["turn"]),
                iso(artifact["timestamp"]),
                str(artifact["size"]),
                artifact["media_type"],
                artifact["name"],
            )
            for artifact in artifacts
        ],
    )


def show_text(data: bytes) -> None:
    """Write a file's content to a terminal, without control characters; into a pipe unchanged."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    text = data.decode(errors="replace")
    write(shown(text))
    if text and not text.endswith("\n"):
        write("\n")
    if shown(text) != text:
        say(_CONTROLS_LEFT_OUT)


def show_patch(patch: Sequence[Mapping[str, Any]], most: int | None = None) -> None:
    """Write a patch of a state, an operation a line.

    Args:
        most: the limit of operations; a last line counts the others.
    """
    for operation in patch[:most]:
        write_line(f"  {json_text(operation)}")
    if most is not None and len(patch) > most:
        write_line(f"  … and {len(patch) - most} more; --json has them all")


def show_file_changes(changes: Iterable[Mapping[str, Any]]) -> None:
    """Write changed files, one a line."""
    for change in changes:
        path = f"{change['old_path']} -> {change['path']}" if change.get("old_path") else change["path"]
        write_line(f"  {LETTERS[change['change']]} {one_line(path)}")


def show_diff(found: Mapping[str, Any]) -> None:
    """Write the differences between two moments."""
    before, after, transcript = found["before"], found["after"], found["transcript"]
    say(f"{before['agent']}@{before['turn']} -> {after['agent']}@{after['turn']}")
    if found["state"]:
        write_line("state")
        show_patch(found["state"])
    if found["files"]:
        write_line("files")
        for line in found["diff"].splitlines():
            write_line(line)
    if transcript["removed"] or transcript["added"]:
        write_line("transcript")
        for sign, events in (("-", transcript["removed"]), ("+", transcript["added"])):
            for event in events:
                who = "user" if event["type"] == "user_message" else "agent"
                write_line(f"{sign} turn {event['turn']} {who}: {one_line(gist(event['type'], event['payload']))}")
    if not (found["state"] or found["files"] or transcript["removed"] or transcript["added"]):
        say("nothing differs")


def parts_text(only: Sequence[str] | None) -> str:
    """Return the parts that a rewind restored, such as ``state, files and transcript``, which is all of them."""
    *others, last = only or PARTS
    return f"{', '.join(others)} and {last}" if others else last
