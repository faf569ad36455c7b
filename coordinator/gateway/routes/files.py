"""Routes of an agent's files: content, directories, versions; uploads and deletions, each a turn of its own."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final
from urllib.parse import unquote_to_bytes

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from coordinator.gateway.content import content_response
from coordinator.gateway.dependencies import Agents, Cursor, Limit, Reading, Turn, Writing
from coordinator.gateway.documents import statuses
from coordinator.gateway.key_bound import body_of
from coordinator.gateway.patterns import FILE_PATH
from coordinator.gateway.routers import router_at
from coordinator.operations.files import FileContent, file_history, find_file
from coordinator.operations.objects import Directory, FileChanged, FileHistory, Symlink

__all__ = ["router"]

router = router_at("/v1/agents/{type}/{key}", "files")

FilePath = Annotated[
    str, Path(alias="path", description="From the workspace's root.", json_schema_extra={"pattern": FILE_PATH})
]
Iteration = Annotated[
    int | None, Query(ge=1, le=2**53, description="A version of the path, as `/history/{path}` lists them.")
]

_BYTES: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
_CONTENT: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A file's bytes; as JSON, a directory or a symlink, which is not followed.",
        "content": {"*/*": _BYTES},
        "model": Directory | Symlink,
    },
    206: {"description": "The bytes of the range.", "content": {"*/*": _BYTES}},
    304: {"description": "The content is the one of `If-None-Match`."},
    **statuses(404, 409, 416),
}
# Without a body it is a file of no bytes.
_UPLOAD: Final[dict[str, Any]] = {"requestBody": {"content": {"*/*": _BYTES}}}


@router.get("/files", responses=statuses(404))
async def list_root(agents: Agents, address: Reading, turn: Turn = None) -> Directory:
    """List the root of the workspace at the end of a turn."""
    found = await agents.read(find_file, address, "", turn)
    assert isinstance(found, Directory)
    return found


@router.get("/files/{path:rest}", responses=_CONTENT, response_class=Response)
async def get_file(
    request: Request, agents: Agents, address: Reading, path: FilePath, turn: Turn = None, iteration: Iteration = None
) -> Response:
    """Return a file's bytes at the end of a turn, or of one of its versions; a directory or symlink as JSON."""
    return await _found(request, agents, address, path, turn, iteration)


@router.head("/files/{path:rest}", responses=_CONTENT, response_class=Response)
async def head_file(
    request: Request, agents: Agents, address: Reading, path: FilePath, turn: Turn = None, iteration: Iteration = None
) -> Response:
    """Return the headers of a file."""
    return await _found(request, agents, address, path, turn, iteration)


@router.put("/files/{path:rest}", responses=statuses(404, 409, 413, 507), openapi_extra=_UPLOAD)
async def put_file(request: Request, agents: Agents, address: Writing, path: FilePath) -> FileChanged:
    """Upload a file, as a turn of its own: committed whole, or not at all. No code of the agent runs.

    Missing directories are made. An agent that is awake ends its running turn first.
    """
    return await agents.put_file(address, _exact(request, path), body_of(request), request.app.state.upload_bytes)


@router.delete("/files/{path:rest}", responses=statuses(404, 409, 507))
async def delete_file(request: Request, agents: Agents, address: Writing, path: FilePath) -> FileChanged:
    """Delete a file or symlink, as a turn of its own. Its versions stay."""
    return await agents.delete_file(address, _exact(request, path))


@router.get("/history/{path:rest}", responses=statuses(404))
async def get_file_history(
    request: Request,
    agents: Agents,
    address: Reading,
    path: FilePath,
    turn: Turn = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> FileHistory:
    """List the versions of a path that were committed up to a turn, oldest first."""
    return await agents.read(file_history, address, _exact(request, path), turn, limit=limit, cursor=cursor)


async def _found(
    request: Request, agents: Agents, address: Reading, path: str, turn: int | None, iteration: int | None
) -> Response:
    found = await agents.read(find_file, address, _exact(request, path), turn, iteration)
    if not isinstance(found, FileContent):
        return JSONResponse(found.as_json())
    return content_response(
        request,
        name=found.path.rpartition("/")[2],
        size=found.size,
        content_id=found.hash,
        open_content=found.open,
    )


def _exact(request: Request, path: str) -> str:
    """Return a path as the client sent it: the framework replaces bytes that are not UTF-8."""
    raw = request.scope.get("raw_path") or b""
    rest = unquote_to_bytes(b"/".join(raw.split(b"/")[6:]))
    return os.fsdecode(rest) if rest.decode(errors="replace") == path else path
