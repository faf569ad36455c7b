"""Routes of the artifacts of clients."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from coordinator.access.caller import Scope
from coordinator.gateway.dependencies import Called, Cursor, IdempotencyKey, Limit, Sessions
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.gateway.routes.v2.bodies import ArtifactBody
from coordinator.sessions.artifacts import NewArtifact
from coordinator.sessions.objects import DeletedArtifact, StoredArtifactObject, StoredArtifactPage

__all__ = ["router"]

router = router_at("/v2/artifacts", "sessions")

ArtifactId = Annotated[str, Path(max_length=64, description="The id of an artifact that a client stored: `art_…`.")]


@router.post("", status_code=201, responses=statuses(404, 409, 413, 507))
async def create_stored_artifact(
    sessions: Sessions, caller: Called, body: ArtifactBody, idempotency_key: IdempotencyKey = None
) -> StoredArtifactObject:
    """Store an artifact. It never changes; its id is not that of its content."""
    caller.require(Scope.WRITE)
    return await sessions.create_artifact(caller.tenant, NewArtifact(**body.model_dump()), idempotency_key)


@router.get("", responses=statuses())
async def list_stored_artifacts(
    sessions: Sessions, caller: Called, limit: Limit = 100, cursor: Cursor = None
) -> StoredArtifactPage:
    """List the artifacts that clients stored, without their contents."""
    caller.require(Scope.READ)
    return await sessions.artifacts(caller.tenant, limit, cursor)


@router.get("/{artifact_id}", responses=statuses(404))
async def get_stored_artifact(sessions: Sessions, caller: Called, artifact_id: ArtifactId) -> StoredArtifactObject:
    """Return an artifact with its content."""
    caller.require(Scope.READ)
    return await sessions.artifact(caller.tenant, artifact_id)


@router.delete("/{artifact_id}", responses=statuses(404, 507))
async def delete_stored_artifact(sessions: Sessions, caller: Called, artifact_id: ArtifactId) -> DeletedArtifact:
    """Delete an artifact. Events go on naming it; bundles have copies of their own."""
    caller.require(Scope.WRITE)
    return await sessions.delete_artifact(caller.tenant, artifact_id)
