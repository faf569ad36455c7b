"""Inboxes and reminders, as commands show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.cli_kit.terminal import json_text, say
from chronicle.cli_kit.times import ago, iso
from coordinator.cli.hints import recorded_error
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["show_inbox", "show_reminders", "text_of"]


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
    if reminder["to"] is not None:
        return f"no, to {reminder['to']}"
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
        ago(now_ms - message["admitted_at"]),
        message["sender"] or "-",
        text_of(message["message"]),
        recorded_error(error) if error else "-",
    )
