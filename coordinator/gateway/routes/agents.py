"""Routes of agents: listing, describing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from coordinator.access.caller import Scope
from coordinator.gateway.dependencies import Agents, Called, Cursor, Limit, Reading
from coordinator.gateway.documents import statuses
from coordinator.operations.objects import AgentObject, AgentPage

__all__ = ["agent", "router"]

router = APIRouter(tags=["agents"])
agent = APIRouter(prefix="/agents/{type}/{key}", tags=["agents"])
"""The routes of one agent."""


@router.get("/agents", responses=statuses())
async def list_agents(
    agents: Agents,
    caller: Called,
    agent_type: Annotated[
        str | None, Query(alias="type", max_length=64, description="Agents of this type only.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> AgentPage:
    """List agents, by address."""
    caller.require(Scope.READ)
    return await agents.agents(agent_type, limit, cursor, tenant=caller.tenant)


@agent.get("", responses=statuses(404))
async def get_agent(agents: Agents, address: Reading) -> AgentObject:
    """Describe an agent."""
    return await agents.agent(address)
