"""Responses with the bytes of a file: ranges, conditions, and headers that keep a browser from running them (RFC 9110).

The entity tag is the content's id, so it is the same wherever the same content is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from typing import BinaryIO, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from coordinator.gateway.errors import error_response
from coordinator.gateway.key_bound import Download
from coordinator.operations.problems import Problem
from podium.artifacts.names import media_type_of

__all__ = ["content_response"]

_PIECE_BYTES: Final = 256 * 1024
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)
_ACTIVE: Final = re.compile(r".*(html|xml|svg|javascript|ecmascript|pdf|flash|mhtml|multipart).*", re.IGNORECASE)
"""Types that a browser would run or render with scripts."""


def content_response(
    request: Request,
    *,
    name: str,
    size: int,
    content_id: str,
    open_content: Callable[[], BinaryIO],
    media_type: str | None = None,
) -> Response:
    """Return the response to a GET or HEAD of a content.

    Args:
        name: the file's name, without directories; offered as the name of a download.
        open_content: opens the content for reading, seekable; it may block.
        media_type: by default guessed from the name.
    """
    kind = media_type or media_type_of(name, text=False)
    disposition = "attachment" if _ACTIVE.fullmatch(kind) else "inline"
    tag = f'"{content_id}"'
    headers = {
        "ETag": tag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Type": f"{kind}; charset=utf-8" if kind.startswith("text/") and "charset" not in kind else kind,
        "Content-Disposition": f"{disposition}; filename*=UTF-8''{_quoted(name)}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }
    if _matches(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": headers["Cache-Control"]})
    found = _range_of(request, size, tag)
    if found is not None and found[0] >= found[1]:
        return error_response(
            Problem(416, "range_not_satisfiable"),
            f"the content has {size} bytes; the range is outside of it",
            "Range",
            headers={"Content-Range": f"bytes */{size}"},
        )
    start, end = found or (0, size)
    if found is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - start)
    status = 200 if found is None else 206
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    return Download(request, _pieces(open_content, start, end), status, headers)


async def _pieces(open_content: Callable[[], BinaryIO], start: int, end: int) -> AsyncGenerator[bytes]:
    file = await asyncio.to_thread(open_content)
    try:
        await asyncio.to_thread(file.seek, start)
        while start < end:
            piece = await asyncio.to_thread(file.read, min(_PIECE_BYTES, end - start))
            start += len(piece)
            yield piece
    finally:
        file.close()


def _range_of(request: Request, size: int, tag: str) -> tuple[int, int] | None:
    """Return start and end of the requested range; ``None`` for the whole. A start not before the end is outside.

    Several ranges, and units that are not known, are ignored, as RFC 9110 allows.
    """
    condition = request.headers.get("if-range")
    found = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if found is None or (condition is not None and condition.strip() != tag):
        return None
    first, last = found.groups()
    if not first:
        return (max(0, size - int(last)), size) if last else None
    if last and int(last) < int(first):
        return None
    return int(first), min(size, int(last) + 1) if last else size


def _matches(condition: str | None, tag: str) -> bool:
    """Whether an ``If-None-Match`` names a tag."""
    tags = [part.strip().removeprefix("W/") for part in (condition or "").split(",")]
    return tag in tags or "*" in tags


def _quoted(name: str) -> str:
    return quote(name.encode("utf-8", "replace"), safe="")
