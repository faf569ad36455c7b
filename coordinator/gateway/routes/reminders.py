"""Routes of an agent's reminders."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from coordinator.gateway.dependencies import Agents, Cursor, Limit, Reading, Writing
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.operations.objects import CancelledReminder, Page, Reminder

__all__ = ["router"]

router = router_at("/v1/agents/{type}/{key}/reminders", "reminders")

ReminderName = Annotated[str, Path(min_length=1, max_length=200, description="The name of a reminder.")]


@router.get("", responses=statuses(404))
async def list_reminders(agents: Agents, address: Reading, limit: Limit = 100, cursor: Cursor = None) -> Page[Reminder]:
    """List the reminders that an agent has set, by name."""
    return await agents.reminders(address, limit, cursor)


@router.delete("/{name:rest}", responses=statuses(404))
async def cancel_reminder(agents: Agents, address: Writing, name: ReminderName) -> CancelledReminder:
    """Cancel a reminder. A message that it has sent already stays in the inbox."""
    return await agents.cancel_reminder(address, name)
