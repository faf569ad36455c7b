"""The route of the records of calls of models."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from coordinator.access.caller import Scope
from coordinator.gateway.dependencies import Agents, Called, Cursor, Limit
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.operations.model_calls import ModelCall
from coordinator.operations.objects import Page

__all__ = ["router"]

router = router_at("/v1/models", "models")


@router.get("/calls", responses=statuses())
async def list_model_calls(
    agents: Agents,
    caller: Called,
    owner: Annotated[str | None, Query(max_length=512, description="Calls of this agent, or response, only.")] = None,
    profile: Annotated[str | None, Query(max_length=64, description="Calls of this profile only.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[ModelCall]:
    """List the calls of models by the tenant's agents and responses, the latest first."""
    caller.require(Scope.READ)
    return await agents.model_calls(caller.tenant, owner, profile, limit, cursor)
