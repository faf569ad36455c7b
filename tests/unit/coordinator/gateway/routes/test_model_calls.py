"""The records of calls over HTTP: a tenant's own, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.models.recorded import keep, record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.served_home import ServedHome


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ServedHome]:
    async with served_home(tmp_path / "home", Notes) as served:
        yield served


async def test_calls_are_listed_the_latest_first_a_page_at_a_time(home: ServedHome, tmp_path: Path) -> None:
    assert await home.get("/models/calls") == {"items": [], "next_cursor": None, "remaining": 0}
    made = [record(f"call_{number}", started_ms=number // 2) for number in range(5)]
    keep(tmp_path / "home", *made, record("call_9", tenant="acme"))
    first = await home.get("/models/calls", limit=3)
    assert [item["call_id"] for item in first["items"]] == ["call_4", "call_3", "call_2"]
    assert first["items"][0] == {
        "call_id": "call_4",
        "owner": "notes/alice",
        "turn": 1,
        "profile": "fast",
        "provider": "scripted",
        "model": "m",
        "status": "completed",
        "error": None,
        "input_tokens": 3,
        "output_tokens": 2,
        "cached_tokens": 0,
        "cache_miss_reason": None,
        "cost": "0.5",
        "attempts": [
            {
                "provider": "scripted",
                "model": "m",
                "started_ms": 10,
                "ttft_ms": 5,
                "ended_ms": 30,
                "error": None,
                "profile": "fast",
            }
        ],
        "started_at": 2,
        "ttft_ms": 5,
        "latency_ms": 20,
    }
    rest = await home.get("/models/calls", limit=3, cursor=first["next_cursor"])
    assert [item["call_id"] for item in rest["items"]] == ["call_1", "call_0"]
    assert (first["remaining"], rest["remaining"], rest["next_cursor"]) == (2, 0, None)
    assert (await home.get("/models/calls", owner="notes/bob"))["items"] == []
    assert len((await home.get("/models/calls", profile="fast", owner="notes/alice"))["items"]) == 5
