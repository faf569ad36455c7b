"""The application: `create_app` puts routes, errors and limits together. The caller owns what it passes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI

from coordinator.gateway.documents import document_of
from coordinator.gateway.errors import add_handlers
from coordinator.gateway.page import files as page_files
from coordinator.gateway.protection.body_limit import BodyLimit
from coordinator.gateway.request_spans import RequestSpans
from coordinator.gateway.routes import (
    ag_ui,
    archives,
    artifacts,
    deploys,
    document,
    files,
    health,
    history,
    keys,
    links,
    messages,
    metrics,
    models,
    project,
    reminders,
    runs,
    ui,
)
from coordinator.gateway.routes import agents as agent_routes
from coordinator.gateway.routes.v2 import artifacts as stored_artifacts
from coordinator.gateway.routes.v2 import bundles, sessions
from coordinator.gateway.routes.v2 import responses as response_routes
from coordinator.operations.conversations import Conversations
from coordinator.sessions.home_sessions import HomeSessions
from coordinator.sessions.once import RepeatedOperations
from podium.turn.telemetry import NO_TRACER

if TYPE_CHECKING:
    from coordinator.access.administration import KeyAdministration
    from coordinator.access.audit import Audit
    from coordinator.access.caller import Access
    from coordinator.gateway.routes.ag_ui import AcceptsState
    from coordinator.gateway.routes.project import Reload
    from coordinator.operations.agents import HomeAgents
    from coordinator.responses.responses import HomeResponses
    from coordinator.streams.home_streams import HomeStreams
    from podium.turn.telemetry import Tracer

__all__ = ["AppOptions", "create_app"]

_ROUTERS: Final = (
    agent_routes.router,
    agent_routes.agent,
    messages.router,
    runs.router,
    reminders.router,
    history.router,
    files.router,
    artifacts.router,
    artifacts.by_id,
    archives.router,
    keys.router,
    links.router,
    project.router,
    deploys.router,
    ui.router,
    ui.chat,
    ui.agent,
    ag_ui.router,
    ag_ui.agent,
    models.router,
    sessions.router,
    stored_artifacts.router,
    bundles.router,
    response_routes.router,
    health.router,
    metrics.router,
    document.router,
)
_ROUTES: Final = [route for router in _ROUTERS for route in router.routes]


@cache
def _document() -> dict[str, Any]:
    return document_of(_ROUTES)


@dataclass(frozen=True, slots=True)
class AppOptions:
    """Options of the application."""

    reload: Reload | None = None
    """Reads the project again; ``None`` without a project."""
    accepts_state: AcceptsState = lambda _: False
    """Whether the class of an agent type accepts the state that a front end sends."""
    page: bool = False
    """Whether to serve the page that talks to agents."""
    error_texts: bool = True
    """Whether all callers get the texts of errors that agents' code makes, not only those with the scope admin."""
    body_bytes: int = 8 * 1024 * 1024
    """The longest body, but of an uploaded file."""
    upload_bytes: int = 1024 * 1024 * 1024
    """The largest file that can be uploaded."""


def create_app(
    agents: HomeAgents,
    access: Access,
    streams: HomeStreams,
    *,
    responses: HomeResponses | None = None,
    keys_of_home: KeyAdministration | None = None,
    audit: Audit | None = None,
    tracer: Tracer = NO_TRACER,
    options: AppOptions | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        agents: the agents of the home; the caller closes them.
        access: authenticates callers.
        streams: the streams of messages and events; the caller closes them.
        responses: the responses of models; the caller closes them. ``None`` where no model can be reached.
        keys_of_home: administers keys; ``None`` where none are used.
        audit: the record of administrators' actions; ``None`` for none.
        tracer: opens a span for each request.
        options: by default all of `AppOptions`.
    """
    options = options or AppOptions()
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.agents = agents
    app.state.sessions = HomeSessions(agents)
    app.state.operations = RepeatedOperations(agents)
    app.state.access = access
    app.state.streams = streams
    app.state.responses = responses
    app.state.keys = keys_of_home
    app.state.audit = audit
    app.state.reload = options.reload
    app.state.accepts_state = options.accepts_state
    app.state.error_texts = options.error_texts
    app.state.chats = Conversations(agents)
    app.state.upload_bytes = options.upload_bytes
    add_handlers(app)
    app.openapi = _document  # type: ignore[method-assign]  # as FastAPI's documentation says
    app.router.routes.extend(_ROUTES)
    app.router.routes.extend(page_files.answering.routes)
    if options.page:
        app.router.routes.extend(page_files.router.routes)
    app.add_middleware(BodyLimit, body_bytes=options.body_bytes, upload_bytes=options.upload_bytes)
    if tracer is not NO_TRACER:
        app.add_middleware(RequestSpans, tracer=tracer)
    return app
