"""The limit of a request's body: refused by its declared length before it is read, and cut off if it is longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from coordinator.gateway.errors import error_response
from coordinator.operations.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BodyLimit"]


class BodyLimit:
    """ASGI middleware.

    Args:
        app: what is limited.
        body_bytes: the longest body, but of an uploaded file.
        upload_bytes: the largest file that can be uploaded.
    """

    def __init__(self, app: ASGIApp, body_bytes: int, upload_bytes: int) -> None:
        self._app = app
        self._body_bytes = body_bytes
        self._upload_bytes = upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._upload_bytes if scope["method"] == "PUT" else self._body_bytes
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if declared.isdigit() and int(declared) > limit:
            message = f"the body has {int(declared)} bytes; at most {limit} are accepted"
            await error_response(Problem(413, "body_too_large"), message)(scope, receive, send)
            return
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413)
            return message

        await self._app(scope, limited, send)
