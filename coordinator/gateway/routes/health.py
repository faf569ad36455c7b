"""Routes without a key: whether the gateway lives, and whether its home can be used."""

from __future__ import annotations

from fastapi import APIRouter
from typing_extensions import TypedDict

from coordinator.gateway.dependencies import Agents
from coordinator.gateway.documents import statuses

__all__ = ["router"]

router = APIRouter(tags=["health"])


class Health(TypedDict):
    """A condition."""

    status: str


@router.get("/healthz", responses=statuses())
async def healthz() -> Health:
    """Whether the gateway answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=statuses())
async def readyz(agents: Agents) -> Health:
    """Whether the home's service and stores can be reached; 503 while they cannot."""
    await agents.check_ready()
    return {"status": "ready"}
