"""Routes of runs: those that are paused, and the answers that they wait for."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from fastapi import Path, Query

from coordinator.access.caller import Scope
from coordinator.gateway.bodies import DecisionBody
from coordinator.gateway.dependencies import AUDITED, Agents, Called, Cursor, Limit, permitted
from coordinator.gateway.documents import statuses
from coordinator.gateway.patterns import ADDRESS
from coordinator.gateway.routers import router_at
from coordinator.operations.objects import Page, PausedRun, PausedRunFiles, Resumed
from podium.errors import InvalidAddress, UnknownAgent

__all__ = ["router"]

router = router_at("/v1/runs", "runs")


@router.get("", responses=statuses(404))
async def list_runs(
    agents: Agents,
    caller: Called,
    status: Annotated[Literal["paused"], Query(description="The status of the runs.")] = "paused",
    agent: Annotated[
        str | None,
        Query(max_length=256, description="Of this agent only: `type/key`.", json_schema_extra={"pattern": ADDRESS}),
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[PausedRun]:
    """List the runs that are paused, and what each waits for."""
    if agent is not None:
        try:
            address = permitted(caller, Scope.READ, agent)
        except InvalidAddress as error:  # the pattern does not say how long its parts are
            raise UnknownAgent(f"no such agent: {error}") from error
        return await agents.runs(status, address, limit, cursor, tenant=caller.tenant)
    caller.require(Scope.READ)
    return await agents.runs(status, None, limit, cursor, tenant=caller.tenant)


RunId: TypeAlias = Annotated[str, Path(max_length=64, description="The id of the run: that of its message, `msg_…`.")]


@router.get("/{run_id}", responses=statuses(404, 409))
async def get_run(agents: Agents, caller: Called, run_id: RunId) -> PausedRunFiles:
    """Return a paused run, and which files its turn has added, changed and removed so far."""
    caller.require(Scope.READ, caller.agent)
    caller.require(Scope.READ, await agents.agent_of_run(run_id, tenant=caller.tenant))
    return await agents.run(run_id, tenant=caller.tenant)


@router.post("/{run_id}/decision", responses=statuses(404, 409, 413), dependencies=[AUDITED])
async def decide_run(
    agents: Agents,
    caller: Called,
    run_id: RunId,
    body: DecisionBody,
) -> Resumed:
    """Answer a paused run, or reject the promise that it waits for; it then goes on.

    An answer is taken once, for the request that is open: a later one gets 409 `run_not_paused`. It needs the scope
    `answer`.
    """
    caller.require(Scope.ANSWER, caller.agent)
    caller.require(Scope.ANSWER, await agents.agent_of_run(run_id, tenant=caller.tenant))
    return await agents.decide(
        run_id,
        body.answer,
        call_id=body.call_id,
        args_hash=body.args_hash,
        promise=body.promise,
        rejection=body.rejection,
        by=caller.key_id,
        tenant=caller.tenant,
    )
