"""Routes of agents: listing, describing, verifying, passivating, deleting; dropping history and content."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import Path as PathParameter
from fastapi import Query

from coordinator.access.caller import Scope
from coordinator.gateway.bodies import DrainBody, EraseBody, FoldBody
from coordinator.gateway.dependencies import (
    AUDITED,
    Administering,
    Agents,
    Called,
    Cursor,
    Limit,
    Reading,
    Writing,
)
from coordinator.gateway.documents import statuses
from coordinator.gateway.patterns import TENANT
from coordinator.gateway.routers import router_at
from coordinator.operations.objects import (
    Agent,
    AgentClassList,
    Deleted,
    Erased,
    Folded,
    Node,
    NodeList,
    Page,
    Passivated,
    Verification,
    Why,
)
from coordinator.streams.public_texts import public_text
from podium.address import check_tenant

__all__ = ["agent", "router"]

router = router_at("/v1", "agents")
agent = router_at("/v1/agents/{type}/{key}", "agents")
"""The routes of one agent."""


@router.get("/agents", responses=statuses())
async def list_agents(
    agents: Agents,
    caller: Called,
    agent_type: Annotated[
        str | None, Query(alias="type", max_length=64, description="Agents of this type only.")
    ] = None,
    tenant: Annotated[
        str | None,
        Query(
            max_length=63,
            json_schema_extra={"pattern": TENANT},
            description="Agents of this tenant, by default of the key's; of another it needs `admin`, "
            "and a key of the tenant `default`.",
        ),
    ] = None,
    awake: Annotated[bool, Query(description="Agents that are awake only.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[Agent]:
    """List agents, by address."""
    caller.require(Scope.READ)
    if tenant is not None and tenant != caller.tenant:
        caller.require_operator()
        check_tenant(tenant)
    return await agents.agents(agent_type, limit, cursor, awake=awake, tenant=tenant or caller.tenant)


@agent.get("", responses=statuses(404))
async def get_agent(agents: Agents, address: Reading) -> Agent:
    """Describe an agent."""
    return await agents.agent(address)


@agent.delete("", responses=statuses(404, 409, 507), dependencies=[AUDITED])
async def delete_agent(
    agents: Agents,
    address: Administering,
    detach: Annotated[
        bool, Query(description="Detach forks first; they lose the history that they inherited.")
    ] = False,
) -> Deleted:
    """Delete an agent permanently: its events, state, files and messages. It must sleep. Needs the scope `admin`."""
    return await agents.delete(address, detach=detach)


@agent.get("/why", responses=statuses(404))
async def explain_agent(agents: Agents, address: Reading) -> Why:
    """Return what an agent waits for, and what is known of its host, its lease, its inbox and its last failures."""
    found = await agents.why(address)
    texts: dict[str, Any] = {
        name: public_text(text)
        for name in ("waits_for", "problem", "wake_error", "last_death", "quarantine")
        if (text := getattr(found, name)) is not None
    }
    return replace(found, **texts)


@router.get("/types", responses=statuses())
async def list_types(agents: Agents, caller: Called) -> AgentClassList:
    """List the agent types, with the JSON Schemas of their typed messages. Not for a key of one agent."""
    caller.require(Scope.READ)
    return await agents.types()


@router.get("/nodes", responses=statuses())
async def list_nodes(agents: Agents, caller: Called) -> NodeList:
    """List the nodes that run agents. It needs the scope `admin`, and a key of the tenant `default`."""
    caller.require_operator()
    return await agents.nodes()


@router.post("/nodes/{node}/drain", responses=statuses(404), dependencies=[AUDITED])
async def drain_node(
    agents: Agents,
    caller: Called,
    node: Annotated[str, PathParameter(max_length=128, description="As the list of nodes shows it.")],
    body: DrainBody,
) -> Node:
    """Move the agents of a node to other nodes after their running turns, and keep it empty, or use it again.

    The answer comes at once. It needs the scope `admin`, and a key of the tenant `default`.
    """
    caller.require_operator()
    return await agents.drain(node, undo=body.undo)


@agent.post("/passivate", responses=statuses(404))
async def passivate_agent(agents: Agents, address: Writing) -> Passivated:
    """Put an agent to sleep after its running turn; answered when it sleeps. Its next message wakes it."""
    return await agents.passivate(address)


@agent.post("/verify", responses=statuses(404))
async def verify_agent(agents: Agents, address: Writing) -> Verification:
    """Check an agent's stored data against its hashes. It reads all of it, and may take long: needs `write`."""
    return await agents.verify(address)


@agent.post("/fold", responses=statuses(404, 409, 413, 507), dependencies=[AUDITED])
async def fold_agent(agents: Agents, address: Administering, body: FoldBody) -> Folded:
    """Drop the older history of an agent for good; without a limit, all history before now. It must sleep.

    State, files and versions of files stay. It needs the scope `admin`.
    """
    return await agents.fold(address, keep_turns=body.keep_turns, keep_days=body.keep_days, dry_run=body.dry_run)


@agent.post("/erase", responses=statuses(404, 413, 507), dependencies=[AUDITED])
async def erase_events(agents: Agents, address: Administering, body: EraseBody) -> Erased:
    """Erase the content of messages, replies, results and artifacts for good.

    Their events stay, and the chain verifies. It needs the scope `admin`.
    """
    return await agents.erase(address, body.events)
