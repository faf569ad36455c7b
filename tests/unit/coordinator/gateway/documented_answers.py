"""Every answer of a gateway that a test gets has a status and a media type of its route in the OpenAPI document."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    import httpx
    from fastapi import FastAPI

__all__ = ["checking"]

_documents: dict[frozenset[str], dict[str, Any]] = {}
"""By the paths of an application: its document, which takes a second to make."""


def checking(app: FastAPI, leaving: asyncio.Event) -> Callable[[httpx.Response], Awaitable[None]]:
    """Return a hook of a client that fails if the application's document does not have an answer.

    Args:
        leaving: whether the client has left: nobody reads what is answered then.
    """

    async def check(answer: httpx.Response) -> None:
        if leaving.is_set():
            return
        request = answer.request
        operation = _operation(app, request.method, request.url.raw_path.partition(b"?")[0].decode())
        if operation is None:
            return
        found = operation["responses"].get(str(answer.status_code))
        said = f"{answer.status_code} of {request.method} {request.url.path}"
        assert found is not None, f"the document does not have {said}"
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind and answer.status_code >= 400:
            assert kind in found["content"], f"the document does not have {kind} for {said}"

    return check


def _operation(app: FastAPI, method: str, path: str) -> dict[str, Any] | None:
    """Return what the document says of a request; ``None`` if it has no such path or method."""
    names = frozenset(route.path for route in app.routes if hasattr(route, "path"))
    document = _documents.get(names) or _documents.setdefault(names, app.openapi())
    found = [name for name in document["paths"] if _pattern(name).fullmatch(path)]
    if not found:
        return None
    nearest = min(found, key=lambda name: name.count("{"))
    operation: dict[str, Any] | None = document["paths"][nearest].get(method.lower())
    return operation


@cache
def _pattern(path: str) -> re.Pattern[str]:
    literals = re.split(r"\{\w+\}", path)
    last = ".*" if path.endswith("{path}") else "[^/]*"
    names = ["[^/]*"] * (len(literals) - 2) + [last] if len(literals) > 1 else []
    return re.compile("".join(re.escape(literal) + name for literal, name in zip(literals, [*names, ""], strict=True)))
