"""Reminders, as an agent's code sees them: one that is due, and one that is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime, timedelta

__all__ = ["Reminder", "ScheduledReminder"]


@dataclass(frozen=True, slots=True)
class Reminder:
    """A reminder that is due, the argument of `BaseAgent.on_reminder`."""

    name: str
    due: datetime
    """When it was due, in UTC; before now, if no service ran then or the agent was busy."""
    message: dict[str, Any]
    missed: int = 0
    """Of a repeated reminder: the later times that had passed as well when it fired; they do not come again."""


@dataclass(frozen=True, slots=True)
class ScheduledReminder:
    """A reminder that is set, as `AgentContext.reminders` lists it."""

    name: str
    due: datetime
    """When it is due next, in UTC."""
    message: dict[str, Any]
    every: timedelta | None = None
    cron: str | None = None
    tz: str | None = None
    """The time zone of ``cron``."""
