"""The OpenAPI description of errors: which statuses a route has, and the shape of their bodies."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field

from coordinator.operations.problems import TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import BaseRoute

__all__ = ["ErrorBody", "ErrorDetail", "document_of", "statuses"]

_DESCRIPTION: Final = """\
Agents with durable state, versioned files and a transcript. An agent is addressed as `type/key`; it always exists, and
its first message starts it.

Times are epoch milliseconds, sizes are bytes. Lists are paged: pass `next_cursor` as `cursor`.
"""

_MEANINGS: Final = {
    400: "The request cannot be understood: a parameter, a field or the body.",
    401: "No valid key.",
    403: "The key does not permit this.",
    404: "There is no such agent, or nothing at this place of it.",
    405: "The path does not have this method.",
    406: "The answer cannot be given in an accepted form.",
    408: "The request came too slowly.",
    409: "The agent's present condition does not permit this.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The message does not fit the handlers of its agent; `param` is the field.",
    416: "The range is outside of the file.",
    429: "Too many messages wait, or too many requests came; see `Retry-After`.",
    431: "The line and the headers of the request are too long.",
    500: "An unexpected error; the gateway's log has it.",
    502: "The agent could not handle the message.",
    503: "The home's service cannot be reached now; see `Retry-After`.",
    504: "There was no answer in time.",
    507: "The disk of the home is full.",
}
_OF_FASTAPI: Final = "HTTPValidationError"
_OF_ALL: Final = (400, 401, 403, 429, 431, 500, 503)
"""Statuses that every route may have."""


class ErrorDetail(BaseModel):
    """The problem, its place, and how to mend it."""

    model_config = ConfigDict(extra="allow", defer_build=True)  # or it would be built for 600 responses of routes

    message: str
    type: Literal[*TYPES]  # type: ignore[valid-type]  # the values of a table
    code: str = Field(description="Stable, for programs.")
    param: str | None = Field(description="The parameter or field; null if the error is not about one.")
    message_id: str | None = Field(
        default=None, description="The message that failed, or that is in the inbox though the request failed."
    )


class ErrorBody(BaseModel):
    """The body of every error."""

    model_config = ConfigDict(defer_build=True)

    error: ErrorDetail


def statuses(*more: int) -> dict[int | str, dict[str, Any]]:
    """Return the error statuses of a route, for its ``responses``.

    Args:
        more: statuses besides those that every route has.
    """
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in sorted({*_OF_ALL, *more})}


def _described(*found: int) -> dict[str, Any]:
    """Return the descriptions of statuses that come from before the application."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    return {str(status): {"description": _MEANINGS[status], "content": content} for status in found}


def document_of(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of an application with some routes.

    FastAPI adds its own shape of validation errors, with the status 422, which the application answers with 400.
    """
    document = get_openapi(title="Podium", version=version("podium"), description=_DESCRIPTION, routes=routes)
    for path in document["paths"].values():
        for method, operation in path.items():
            if _OF_FASTAPI in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
            if "requestBody" in operation:
                operation["responses"].update(_described(408))
            if method == "post":  # a body of a wrong type, or one that is too large, is refused also where none is read
                operation["responses"].update(_described(413, 415))
    for name in (_OF_FASTAPI, "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return document
