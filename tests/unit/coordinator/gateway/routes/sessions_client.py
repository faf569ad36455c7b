"""A client of the sessions of a served home, as programs of users are: plain HTTP, and a cursor of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from tests.unit.coordinator.gateway.served_home import ServedHome

__all__ = ["BranchCursor", "Client", "opened"]


@dataclass
class BranchCursor:
    """Where a client believes a branch to be."""

    session_id: str
    branch_id: str
    version: int = 0
    head_event_id: str | None = None

    @property
    def path(self) -> str:
        return f"/v2/sessions/{self.session_id}/branches/{self.branch_id}"

    def append_body(self, event_type: str = "note", **event: Any) -> dict[str, Any]:
        return {
            "expected_version": self.version,
            "expected_head_event_id": self.head_event_id,
            "event": {"event_type": event_type, **event},
        }

    def at(self, event: dict[str, Any]) -> BranchCursor:
        """Return the cursor after an event."""
        return BranchCursor(self.session_id, self.branch_id, event["sequence"], event["id"])


class Client:
    """Asks, and checks the status of what comes."""

    def __init__(self, home: ServedHome, headers: dict[str, str] | None = None) -> None:
        self.home = home
        self.http: httpx.AsyncClient = home.http
        self.headers = headers or {}

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.http.request(method, path, json=body, headers={**self.headers, **named})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def get(self, path: str) -> Any:
        return await self.ask("GET", path)

    async def post(self, path: str, body: Any, status: int = 201, **headers: str) -> Any:
        return await self.ask("POST", path, body, status, **headers)

    async def refused(
        self, path: str, body: Any, status: int, code: str, method: str = "POST", **headers: str
    ) -> dict[str, Any]:
        """Return the error of a request that is refused."""
        error: dict[str, Any] = (await self.ask(method, path, body, status, **headers))["error"]
        assert error["code"] == code, error
        return error

    async def session(self, **body: Any) -> BranchCursor:
        """Open a session."""
        made = await self.post("/v2/sessions", body)
        return BranchCursor(made["id"], made["default_branch_id"])

    async def append(self, cursor: BranchCursor, event_type: str = "note", **event: Any) -> BranchCursor:
        """Append an event, and return the cursor after it."""
        return cursor.at(await self.post(f"{cursor.path}/events", cursor.append_body(event_type, **event)))

    async def types(self, cursor: BranchCursor) -> list[str]:
        """Return the types of a branch's events."""
        return [event["event_type"] for event in (await self.get(f"{cursor.path}/events?limit=1000"))["items"]]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Client]:
    """Serve a home without keys."""
    async with served_home(path, Notes) as home:
        yield Client(home)
