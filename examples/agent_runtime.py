"""An agent runtime of your own, whose memory is a session of podium. It needs httpx, and nothing of podium.

    podium up                              # a project with a profile of a model, such as [models."code.fast"]
    pip install httpx==0.28.1
    python agent_runtime.py "Hello, I am Ann." "Who am I?"

The loop is yours: append what the user says, ask for a response, append that the assistant answered. The transcript is
podium's: append-only, and never overwritten by another writer, who gets a conflict and reads again. `PODIUM_URL` is the
gateway's URL, and `PODIUM_KEY` the key (`pk_…`) for one that needs it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any

import httpx

URL = os.environ.get("PODIUM_URL", "http://127.0.0.1:8700")
KEY = os.environ.get("PODIUM_KEY", "")
MODEL = os.environ.get("PODIUM_MODEL", "code.fast")
QOS = {
    "class": "interactive",
    "target_ttft_ms": 500,
    "deadline_ms": 8000,
    "degrade_policy": "allow_compatible_fallback",
}


@dataclass
class BranchCursor:
    """The end of a branch, as this client knows it."""

    session_id: str
    branch_id: str
    version: int = 0
    head_event_id: str | None = None

    @property
    def path(self) -> str:
        return f"/v2/sessions/{self.session_id}/branches/{self.branch_id}"


class Runtime:
    """A client of one gateway."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post(path, json=body)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    async def open_session(self) -> BranchCursor:
        session = await self.post("/v2/sessions", {})
        return BranchCursor(session["id"], session["default_branch_id"])

    async def refresh(self, cursor: BranchCursor) -> None:
        """Read where the branch ends now."""
        answer = await self.http.get(cursor.path)
        answer.raise_for_status()
        branch = answer.json()
        cursor.version, cursor.head_event_id = branch["version"], branch["head_event_id"]

    async def append(self, cursor: BranchCursor, event_type: str, payload_ref: str | None = None) -> bool:
        """Append an event; return False if another writer was first, and nothing was appended."""
        event = {"event_type": event_type}
        if payload_ref is not None:
            event["payload_ref"] = payload_ref
        position = {"expected_version": cursor.version, "expected_head_event_id": cursor.head_event_id}
        answer = await self.http.post(f"{cursor.path}/events", json={**position, "event": event})
        if answer.status_code == 409 and answer.json()["error"]["code"] == "branch_version_conflict":
            return False
        answer.raise_for_status()
        appended = answer.json()
        cursor.version, cursor.head_event_id = appended["sequence"], appended["id"]
        return True

    async def append_at_the_end(self, cursor: BranchCursor, event_type: str, payload_ref: str | None = None) -> None:
        """Append an event, wherever the branch ends by then."""
        while not await self.append(cursor, event_type, payload_ref):
            await self.refresh(cursor)

    async def fork(self, cursor: BranchCursor) -> BranchCursor:
        """Return a branch that goes on from the head; the main line stays as it is."""
        path = f"/v2/sessions/{cursor.session_id}/branches"
        branch = await self.post(path, {"fork_from_branch_id": cursor.branch_id})
        return BranchCursor(cursor.session_id, branch["id"], branch["version"], branch["head_event_id"])

    async def respond(self, cursor: BranchCursor, text: str) -> dict[str, Any]:
        """Have the model answer on the branch; nothing is appended."""
        where = {"session_id": cursor.session_id, "branch_id": cursor.branch_id}
        return await self.post("/v2/responses", {"model": MODEL, "input": text, **where, "qos": QOS})

    async def turn(self, cursor: BranchCursor, text: str) -> str:
        """Say something, and return the answer."""
        await self.append_at_the_end(cursor, "user_message")
        response = await self.respond(cursor, text)
        await self.append_at_the_end(cursor, "assistant_message")
        said: str = response["output_text"]
        return said


async def main(texts: list[str]) -> None:
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    async with httpx.AsyncClient(base_url=URL, headers=headers, timeout=30) as http:
        runtime = Runtime(http)
        cursor = await runtime.open_session()
        for text in texts:
            print(f"> {text}\n{await runtime.turn(cursor, text)}")
        aside = await runtime.fork(cursor)
        print(f"> (aside) Say it again.\n{await runtime.turn(aside, 'Say it again.')}")
        await runtime.refresh(cursor)
        print(f"main line: {cursor.version} events, aside: {aside.version} events")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["Hello, I am Ann.", "Who am I?"]))
