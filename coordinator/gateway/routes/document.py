"""The route of the OpenAPI document."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

from coordinator.access.caller import Access, MissingKey, NotPermitted, Scope
from coordinator.gateway.dependencies import HomesAgents
from coordinator.gateway.typed_messages import with_typed_messages

__all__ = ["router"]

router = APIRouter()


@router.get("/openapi.json", include_in_schema=False)
async def get_document(request: Request, agents: HomesAgents) -> JSONResponse:
    """Return the OpenAPI document, with the typed messages of agents for callers who may list those.

    It is made at the first request, which takes a moment.
    """
    access: Access = request.app.state.access
    document = request.app.openapi()
    try:
        caller = await access.authenticate(request.headers.get("authorization"))
        caller.require(Scope.READ)
    except (MissingKey, NotPermitted):
        return JSONResponse(document)
    return JSONResponse(with_typed_messages(document, (await agents.types()).items))
