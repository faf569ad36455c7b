"""The quota of bytes: each way to store a byte is counted, and a client that has too many is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.access.quotas import Quota, QuotaExceeded, Quotas
from coordinator.client_messages import Admission
from coordinator.homes.opening import open_records
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness
from podium.turn.busy import BusyPolicy
from tests.unit.coordinator.gateway.routes.sessions_client import BranchCursor, Client, opened

PIECE: Final = 30_000
QUOTA: Final = 100_000
TEXT: Final = "x" * PIECE


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with opened(tmp_path / "home") as found:
        yield found


# -- what clients store -----------------------------------------------------------------------------------------------


async def appended(client: Client, place: BranchCursor, number: int, payload: str) -> httpx.Response:
    """Append an event; the branch is as the client has left it."""
    at = await client.get(place.path)
    cursor = BranchCursor(place.session_id, place.branch_id, at["version"], at["head_event_id"])
    return await client.http.post(f"{place.path}/events", json=cursor.append_body(payload=f"{number}{payload}"))


async def event(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    return await appended(client, place, number, TEXT)


async def large_event(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    return await appended(client, place, number, "x" * 70_000)


async def session(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    return await client.http.post("/v2/sessions", json={"metadata": {"a": TEXT}})


async def artifact(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    return await client.http.post("/v2/artifacts", json={"content": TEXT})


async def described_artifact(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    return await client.http.post("/v2/artifacts", json={"content": "", "metadata": {"a": TEXT}})


async def bundle(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    return await client.http.post("/v2/bundles", json={"items": [{"text": TEXT}]})


async def response(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    return await client.http.post("/v2/responses", json={"model": "code.fast", "input": TEXT})


async def upload(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    return await client.http.put(f"/v1/agents/notes/a/files/{number}", content=TEXT.encode())


async def agent_fork(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    if number == 0:
        assert (await upload(client, place, 0)).status_code == 200
    return await client.http.post("/v1/agents/notes/a/fork", json={"key": f"f{number}"})


async def archive(client: Client, place: BranchCursor, number: int) -> httpx.Response:
    if number == 0:
        assert (await upload(client, place, 0)).status_code == 200
    exported = await client.http.get("/v1/agents/notes/a/archive")
    return await client.http.put(f"/v1/agents/notes/i{number}/archive", content=exported.content)


WAYS: Final = [
    event,
    large_event,
    session,
    artifact,
    described_artifact,
    bundle,
    response,
    upload,
    agent_fork,
    archive,
]


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_client_stores_is_counted(
    client: Client, way: Callable[[Client, BranchCursor, int], Awaitable[httpx.Response]]
) -> None:
    await client.home.send("notes/a", "hi")
    await client.home.fleet.sleep("notes/a")
    place = await client.session()
    home = client.home.agents.stores.home
    open_records(home).set_quotas({"default": Quota(bytes=QUOTA)})
    for number in range(10):
        answer = await way(client, place, number)
        if answer.status_code == 403:
            break
        assert answer.is_success, answer.text
        client.home.fleet.clock.advance(61.0)  # what is counted is the sum of what is there
    else:
        pytest.fail("it is never refused")
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("permission_error", "quota_exceeded")
    assert number > 0, "there was room for one"


@pytest.mark.parametrize("way", [event, session, artifact, bundle, response, upload])
async def test_what_a_client_stores_is_counted_at_once(
    client: Client, way: Callable[[Client, BranchCursor, int], Awaitable[httpx.Response]]
) -> None:
    await client.home.send("notes/a", "hi")
    await client.home.fleet.sleep("notes/a")
    place = await client.session()
    home = client.home.agents.stores.home
    open_records(home).set_quotas({"default": Quota(bytes=QUOTA)})
    statuses = [(await way(client, place, number)).status_code for number in range(4)]
    assert statuses[-1] == 403


async def test_what_is_small_is_counted_with_its_row(client: Client) -> None:
    place = await client.session()
    home = client.home.agents.stores.home
    open_records(home).set_quotas({"default": Quota(bytes=5000)})
    body = {"fork_from_branch_id": place.branch_id}
    for path, wanted in ((f"/v2/sessions/{place.session_id}/branches", body), ("/v2/sessions", {})):
        statuses = [(await client.http.post(path, json=wanted)).status_code for _ in range(20)]
        assert statuses[-1] == 403
    assert (await client.http.delete(f"/v2/sessions/{place.session_id}")).status_code == 200, "it can be deleted"


def test_messages_are_counted() -> None:
    store, blobs, clock = MemoryJournalStore(), MemoryBlobStore(), ManualClock()
    quotas = Quotas(lambda: {"acme": Quota(bytes=QUOTA)}, store, blobs, clock)
    admission = Admission(store, blobs, IdSource(), clock, 1000, quotas.check)

    def send() -> None:
        admission.admit(Address("notes", "a", "acme"), TEXT.encode(), None, BusyPolicy.ENQUEUE)

    for _ in range(3):
        send()
    for _ in range(2):
        with pytest.raises(QuotaExceeded, match="a message of 30256 bytes is too large"):
            send()
        clock.advance(61.0)
    assert len(store.pending(store.session("notes/a", "acme").session_id)) == 3


# -- what agents store ------------------------------------------------------------------------------------------------


class Storing(BaseAgent):
    """Stores a piece in the way that its message names."""

    agent_type = "storing"

    class State(DeltaState):
        _entity_type = "storing"
        _version = 1
        text: str = ""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        match message.get("way"):
            case "state":
                ctx.state.text = TEXT
            case "a file":
                (ctx.workspace / "data").write_text(TEXT)
            case "an artifact":
                await ctx.add_artifact("data.txt", TEXT)
            case "a step of a parked message":
                await ctx.step("piece", lambda: TEXT)
                raise RuntimeError("behind the step")
            case "a reminder":
                await ctx.remind("later", every=3600.0, message={"text": TEXT})
            case "a tell":
                await ctx.tell("storing/other", {"text": TEXT})
            case "a reply":
                await ctx.send_message(TEXT)
            case "an answer":
                ctx.reply({"text": TEXT})
            case "an emitted event":
                await ctx.emit("piece", {"text": TEXT})


STORED: Final = (
    "state",
    "a file",
    "an artifact",
    "a step of a parked message",
    "a reminder",
    "a tell",
    "a reply",
    "an answer",
)


@pytest.mark.parametrize("way", [*STORED, "an emitted event", "nothing"])
async def test_what_an_agent_stores_is_counted(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storing, "max_attempts", 1)
    store, blobs, clock = MemoryJournalStore(), MemoryBlobStore(), ManualClock()
    async with AgentHarness(Storing, "a", store=store, blobs=blobs, tenant="acme", clock=clock) as agent:
        await agent.send({"way": way})
    quotas = Quotas(lambda: {"acme": Quota(bytes=PIECE)}, store, blobs, clock)
    if way in STORED:
        with pytest.raises(QuotaExceeded):
            quotas.check_record("acme", 0)
    else:  # frames of emitted events are not recorded
        quotas.check_record("acme", 0)
