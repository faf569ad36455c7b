"""A gateway over a home without a service, in a thread of its own."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from coordinator.access.caller import OpenAccess
from coordinator.gateway.app import create_app
from coordinator.home import Home
from coordinator.operations.agents import HomeAgents
from coordinator.service.client import ServiceError
from coordinator.streams.home_streams import HomeStreams
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coordinator.access.caller import Access

__all__ = ["NoService", "gateway_over"]


class NoService:
    """The link to a service that does not run."""

    async def client(self) -> Any:
        raise ServiceError("no service runs")


@contextmanager
def gateway_over(home: Path, access: Access | None = None) -> Iterator[str]:
    """Serve a home; its URL.

    Args:
        access: who may call; anyone by default.
    """
    service = NoService()
    agents = HomeAgents(Home(home).open(), service)
    app = create_app(agents, access or OpenAccess(), HomeStreams(service.client, agents))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        agents.close()
