"""The route of the project. It is not there where the gateway serves none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

from fastapi import Depends
from starlette.requests import Request
from typing_extensions import TypedDict

from chronicle.errors import InvalidInput, NotFound
from coordinator.gateway.dependencies import AUDITED, Called
from coordinator.gateway.documents import statuses
from coordinator.gateway.errors import ApiError
from coordinator.gateway.routers import router_at
from coordinator.operations.problems import Problem
from coordinator.registry.reloading import Reloaded
from podium.errors import AgentLoadError

__all__ = ["Reload", "router"]

router = router_at("/v1", "project")

Reload: TypeAlias = Callable[[], Awaitable[Reloaded]]
"""Reads the project again, for the service that runs now; raises as `reload_project`."""


class ReloadResult(TypedDict):
    """Result of a reload."""

    types: list[str]
    """The agent types that are known now."""
    reloaded: list[str]
    """The awake agents that move to other code or another configuration after their running turns."""
    restart_for: list[str]
    """Names of variables of the project that the service does not have: they need its restart."""


def _reload(request: Request) -> Reload:
    found: Reload | None = request.app.state.reload
    if found is None:
        raise ApiError(Problem(404, "no_project"), "this gateway serves no project")
    return found


@router.post("/reload", responses=statuses(404, 409), dependencies=[AUDITED])
async def reload_project(caller: Called, reload: Annotated[Reload, Depends(_reload)]) -> ReloadResult:
    """Read the project file again, and move awake agents to edited code and configuration after their running turns.

    A file that cannot be used is answered by 409 `invalid_project`, and changes nothing. It needs the scope `admin`,
    and a key of the tenant `default`.
    """
    caller.require_operator()
    try:
        done = await reload()
    except (InvalidInput, NotFound, AgentLoadError) as error:
        raise ApiError(Problem(409, "invalid_project"), str(error)) from error
    return {"types": list(done.registry.types), "reloaded": list(done.agents), "restart_for": list(done.restart_for)}
