"""Routes without a key: whether the gateway lives, and whether its home can be used."""

from __future__ import annotations

import structlog
from typing_extensions import TypedDict

from chronicle.errors import ChronicleError
from coordinator.gateway.dependencies import HomesAgents
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.service.client import ServiceError

__all__ = ["router"]

router = router_at("", "health")
_log = structlog.stdlib.get_logger(__name__)


class Health(TypedDict):
    """A condition."""

    status: str


@router.get("/healthz", responses=statuses())
async def healthz() -> Health:
    """Whether the gateway answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=statuses())
async def readyz(agents: HomesAgents) -> Health:
    """Whether the home's service and stores can be reached; 503 while they cannot."""
    try:
        await agents.check_ready()
    except (ChronicleError, ServiceError) as error:  # whose text names paths, and this route is for anyone
        _log.info("not_ready", error=str(error))
        raise ServiceError("the home cannot be used now; the gateway's log says why") from error
    return {"status": "ready"}
