"""Routes of an agent's artifacts."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from coordinator.access.caller import Scope
from coordinator.gateway.content import content_response
from coordinator.gateway.dependencies import Agents, Called, Cursor, Limit, Reading, Turn
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.operations.artifacts import artifact_of_agent, artifact_of_tenant, artifact_page
from coordinator.operations.objects import Artifact, FoundArtifact, Page

__all__ = ["by_id", "router"]

router = router_at("/v1/agents/{type}/{key}/artifacts", "files")
by_id = router_at("/v1", "files")
"""The route of an artifact whose agent is not known."""

ArtifactId = Annotated[str, Path(description="Such as `art_01HF7YAT00S9NX0Q1E5VWJ2B8M`.")]

_BYTES: Final[dict[str, Any]] = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
_CONTENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The artifact's bytes.", "content": _BYTES},
    206: {"description": "The bytes of the range.", "content": _BYTES},
    304: {"description": "The content is the one of `If-None-Match`."},
    **statuses(404, 416),
}


@router.get("", responses=statuses(404))
async def list_artifacts(
    agents: Agents, address: Reading, turn: Turn = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[Artifact]:
    """List artifacts up to a turn, oldest first, inherited ones included."""
    return await agents.read(artifact_page, address, turn, limit=limit, cursor=cursor)


@by_id.get("/artifacts/{artifact_id}", responses=statuses(404))
async def find_artifact(agents: Agents, caller: Called, artifact_id: ArtifactId) -> FoundArtifact:
    """Find an artifact by its id alone. Its bytes are at `/v1/agents/{agent}/artifacts/{artifact_id}`."""
    caller.require(Scope.READ)
    return await agents.read(artifact_of_tenant, artifact_id, tenant=caller.tenant)


@router.get("/{artifact_id}", responses=_CONTENT, response_class=Response)
async def get_artifact(request: Request, agents: Agents, address: Reading, artifact_id: ArtifactId) -> Response:
    """Return an artifact's bytes."""
    return await _content(request, agents, address, artifact_id)


@router.head("/{artifact_id}", responses=_CONTENT, response_class=Response)
async def head_artifact(request: Request, agents: Agents, address: Reading, artifact_id: ArtifactId) -> Response:
    """Return the headers of an artifact."""
    return await _content(request, agents, address, artifact_id)


async def _content(request: Request, agents: Agents, address: Reading, artifact_id: str) -> Response:
    found = await agents.read(artifact_of_agent, address, artifact_id)
    return content_response(
        request,
        name=found.name,
        size=found.size_bytes,
        content_id=found.content.id,
        open_content=partial(agents.open_artifact, found),
        media_type=found.media_type,
    )
