"""Routes of the deploys of agents' code. Where no keys are used they refuse all: code runs as the home's user."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends
from starlette.requests import Request

from coordinator.access.caller import NotPermitted
from coordinator.gateway.dependencies import Called, HomesAgents, noting
from coordinator.gateway.documents import statuses
from coordinator.gateway.key_bound import body_of
from coordinator.gateway.routers import router_at
from coordinator.operations.deploys import Deployer
from coordinator.operations.objects import Deployed, DeployList
from podium.code.transfer import MEDIA_TYPE

__all__ = ["router"]

router = router_at("/v1/deploys", "project")

_UPLOAD: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}


async def _deployer(request: Request, caller: Called) -> Deployer:
    try:
        caller.require_deployer()
    except NotPermitted:
        with noting(request, caller):
            raise
    assert caller.key_id is not None
    return Deployer(caller.key_id, caller.tenant, request.client.host if request.client is not None else None)


Deploying: TypeAlias = Annotated[Deployer, Depends(_deployer)]
"""The caller, who may deploy."""


@router.get("", responses=statuses())
async def list_deploys(agents: HomesAgents, deployer: Deploying) -> DeployList:  # noqa: ARG001  checked
    """List the deploys of agents' code, the current one last. It needs the scope `deploy`."""
    return await agents.deploys()


@router.put("/current", responses=statuses(409, 413, 507), openapi_extra=_UPLOAD)
async def deploy_code(request: Request, agents: HomesAgents, deployer: Deploying) -> Deployed:
    """Make a code bundle that of the home's agents: awake ones move to it after their running turns.

    The body is the bundle as `podium deploy` packs it, which is checked as a whole before anything is stored: a line
    with its manifest, then the contents of its files. If it is the current one, nothing changes. It needs the scope
    `deploy`, and a key of the tenant `default`.
    """
    return await agents.deploy(body_of(request), deployer)


@router.delete("/current", responses=statuses(409, 507))
async def withdraw_deploy(agents: HomesAgents, deployer: Deploying) -> Deployed:
    """Have agents run the files of the service's machine again. It needs the scope `deploy`."""
    return await agents.withdraw_deploy(deployer)


@router.post("/previous", responses=statuses(404, 409, 507))
async def deploy_previous(agents: HomesAgents, deployer: Deploying) -> Deployed:
    """Make the code of the deploy before the current one current again. It needs the scope `deploy`."""
    return await agents.deploy_previous(deployer)
