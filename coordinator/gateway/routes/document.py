"""The route of the OpenAPI document."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse

__all__ = ["router"]

router = APIRouter()


@router.get("/openapi.json", include_in_schema=False)
def get_document(request: Request) -> JSONResponse:
    """Return the OpenAPI document; it is made at the first request, which takes a moment."""
    return JSONResponse(request.app.openapi())
