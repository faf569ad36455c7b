"""Routes of bundles."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from coordinator.access.caller import Scope
from coordinator.gateway.dependencies import Called, Cursor, IdempotencyKey, Limit, Sessions
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.gateway.routes.v2.bodies import BundleBody
from coordinator.sessions.bundles import BundleItem
from coordinator.sessions.objects import BundleObject, BundlePage

__all__ = ["router"]

router = router_at("/v2/bundles", "sessions")

BundleId = Annotated[str, Path(max_length=64, description="The id of a bundle: `bnd_…`.")]


@router.post("", status_code=201, responses=statuses(404, 409, 413, 507))
async def create_bundle(
    sessions: Sessions, caller: Called, body: BundleBody, idempotency_key: IdempotencyKey = None
) -> BundleObject:
    """Compile texts, in their order, into a bundle that sessions can pin. The same items give the same bytes."""
    caller.require(Scope.WRITE)
    items = [BundleItem(item.text, item.artifact_id, item.title) for item in body.items]
    return await sessions.create_bundle(caller.tenant, items, body.metadata, idempotency_key)


@router.get("", responses=statuses())
async def list_bundles(sessions: Sessions, caller: Called, limit: Limit = 100, cursor: Cursor = None) -> BundlePage:
    """List bundles, without their contents."""
    caller.require(Scope.READ)
    return await sessions.bundles(caller.tenant, limit, cursor)


@router.get("/{bundle_id}", responses=statuses(404))
async def get_bundle(sessions: Sessions, caller: Called, bundle_id: BundleId) -> BundleObject:
    """Return a bundle with its compiled content."""
    caller.require(Scope.READ)
    return await sessions.bundle(caller.tenant, bundle_id)
