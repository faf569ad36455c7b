"""`JsonRoute`: a route whose body is read by the JSON policy of `chronicle.canonical`, instead of Python's own reader.

That one takes NaN, numbers beyond every double, and the last of several members of one name.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chronicle.canonical import decode_input
from chronicle.errors import InvalidInput

__all__ = ["JsonRoute"]


class _JsonRequest(Request):
    async def json(self) -> Any:
        """Return the value of the body.

        Raises:
            HTTPException: the body is not JSON, or not JSON that is accepted.
        """
        try:
            return decode_input(await self.body())
        except InvalidInput as error:
            raise HTTPException(400, f"the body is {error}") from error


class JsonRoute(APIRoute):
    """A route of FastAPI, but for the reading of its body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what handles a request."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_and_handle(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return read_and_handle
