"""Routes of an agent as one file: its archive, written and read as by `podium export` and `podium import`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, BinaryIO, Final

from starlette.requests import Request
from starlette.responses import Response

from coordinator.gateway.dependencies import AUDITED, Administering, Agents, Called, Writing
from coordinator.gateway.documents import statuses
from coordinator.gateway.key_bound import Download, body_of
from coordinator.gateway.routers import router_at
from coordinator.operations.objects import Imported

__all__ = ["router"]

router = router_at("/v1/agents/{type}/{key}", "agents")

_PIECE_BYTES: Final = 256 * 1024
_ZIP: Final[dict[str, Any]] = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
_ARCHIVE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The archive, a ZIP file.", "content": _ZIP},
    **statuses(404, 507),
}
_UPLOAD: Final[dict[str, Any]] = {"requestBody": {"required": True, "content": _ZIP}}


@router.get("/archive", responses=_ARCHIVE, response_class=Response)
async def export_agent(request: Request, agents: Agents, address: Writing) -> Response:
    """Return an agent as one file: all its events, and all versions of its files, verified while they are read.

    The agent may be running; messages in its inbox are not exported. It reads all of the agent: needs `write`.
    """
    async with agents.exported(address) as found:
        headers = {
            "Content-Length": str(found.size_bytes),
            "Content-Disposition": 'attachment; filename="agent.podium"',
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-store",
        }
        file = await asyncio.to_thread(found.path.open, "rb")  # it is read when it has no name any more
    return Download(request, _pieces(file), 200, headers, "application/zip")


@router.put(
    "/archive", status_code=201, responses=statuses(404, 409, 413, 507), openapi_extra=_UPLOAD, dependencies=[AUDITED]
)
async def import_agent(request: Request, agents: Agents, caller: Called, address: Administering) -> Imported:
    """Create an agent from an archive, which is verified as a whole before anything is written.

    It needs the scope `admin`, and a key of the tenant `default`: an archive tells which histories the home has.
    """
    caller.require_operator()
    return await agents.import_agent(address, body_of(request), request.app.state.upload_bytes)


async def _pieces(file: BinaryIO) -> AsyncGenerator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece
