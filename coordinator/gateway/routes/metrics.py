"""The route of the metrics, for Prometheus."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Header
from starlette.responses import Response

from coordinator.gateway.dependencies import Agents, Called
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.telemetry.exposition import shown

__all__ = ["router"]

router = router_at("", "health")


# Not PlainTextResponse: FastAPI would describe the errors, which are JSON, as text, too.
_TEXT: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get("/metrics", response_class=Response, responses={**_TEXT, **statuses()})
async def get_metrics(agents: Agents, caller: Called, accept: Annotated[str | None, Header()] = None) -> Response:
    """Return the metrics of the home as Prometheus reads them, or OpenMetrics, if the `Accept` header prefers it.

    It needs a key of the tenant `default` with the scope `metrics`, as the metrics count the agents of all tenants.
    """
    caller.require_metrics()
    text, content_type = shown(await agents.metrics(), accept)
    return Response(text, headers={"Content-Type": content_type})
