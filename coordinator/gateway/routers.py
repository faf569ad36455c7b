"""Routers of the application: `router_at` makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from coordinator.gateway.json_bodies import JsonRoute

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

__all__ = ["router_at"]


def _name(route: APIRoute) -> str:
    return route.name


def router_at(path: str, tag: str) -> APIRouter:
    """Return a router, whose routes have in the document of the application the ids that their functions have as names.

    The application takes its routes as they are. Of a router that is included, FastAPI builds each route a second time
    at an application's first requests, and it looks twice for the route of each request.

    Args:
        path: what the paths of its routes begin with; it may be empty.
        tag: the group of its routes in the document.
    """
    return APIRouter(prefix=path, tags=[tag], generate_unique_id_function=_name, route_class=JsonRoute)
