"""What happens while the gateway writes a call's record: the call is recorded nevertheless, and its cost counted."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import aclosing, closing, contextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

from chronicle.ids import IdSource
from coordinator.homes.sqlite.calls import CALLS, SqliteCallLog, SqliteCallRecords
from coordinator.models.calls import ModelRequest
from coordinator.models.gateway import ModelGateway
from coordinator.models.profiles import ModelsConfig, Price, Profile
from coordinator.models.providers import Providers
from podium.models import LLMMessage, ModelError, Usage
from podium.turn.telemetry import NO_TRACER
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def configs() -> list[ModelsConfig]:
    """The profiles; the last ones are in force."""
    return []


@pytest.fixture
async def gateway(tmp_path: Path, configs: list[ModelsConfig]) -> AsyncIterator[ModelGateway]:
    script = tmp_path / "answers.json"
    script.write_text(json.dumps([{"text": "hello", "usage": {"input_tokens": 0, "output_tokens": 2}}]))
    profile = Profile("priced", "scripted", script=str(script), price=Price("0", "1000000"))
    config = ModelsConfig({"priced": profile}, {"*": "1"})
    configs.append(config)
    providers = Providers({})
    with closing(SqliteCallRecords(tmp_path)) as records:
        yield ModelGateway(lambda: configs[-1], providers, records, NO_TRACER, Random(1))
        await providers.aclose()


@contextmanager
def written_elsewhere(home: Path) -> Iterator[None]:
    """Hold the lock of the records, as another process that writes does: what is to be recorded waits."""
    with closing(sqlite3.connect(home / CALLS.name, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def request() -> ModelRequest:
    return ModelRequest(IdSource().other("call_", 0), "acme", "priced", [LLMMessage("user", "Hello?")])


async def test_a_call_that_is_left_while_it_begins_is_recorded_as_cancelled(
    gateway: ModelGateway, tmp_path: Path
) -> None:
    call = gateway.stream(request())
    with written_elsewhere(tmp_path):
        beginning = asyncio.create_task(anext(call))
        await asyncio.wait([beginning], timeout=0.2)  # it waits for the lock
        beginning.cancel()
        await asyncio.wait([beginning], timeout=0.1)
    with pytest.raises(asyncio.CancelledError):
        await beginning
    await until(lambda: bool(SqliteCallLog(tmp_path).latest(None, 9)), "the call has a row")
    assert [record.status for record in SqliteCallLog(tmp_path).latest(None, 9)] == ["cancelled"]


async def test_a_call_that_is_left_while_its_end_is_written_counts(gateway: ModelGateway, tmp_path: Path) -> None:
    async with aclosing(gateway.stream(request())) as call:
        async for chunk in call:
            if isinstance(chunk, Usage):
                break
        with written_elsewhere(tmp_path):
            ending = asyncio.create_task(anext(call))
            await asyncio.wait([ending], timeout=0.2)  # it waits for the lock
            ending.cancel()
            await asyncio.wait([ending], timeout=0.1)
        with pytest.raises(asyncio.CancelledError):
            await ending
    await until(lambda: SqliteCallLog(tmp_path).latest(None, 9)[0].status != "running", "the call has its end")
    assert [record.cost for record in SqliteCallLog(tmp_path).latest(None, 9)] == ["2"]
    with pytest.raises(ModelError, match="used up its budget"):
        [chunk async for chunk in gateway.stream(request())]


async def test_a_call_costs_what_its_profile_said_when_it_began(
    gateway: ModelGateway, configs: list[ModelsConfig], tmp_path: Path
) -> None:
    async with aclosing(gateway.stream(request())) as call:
        await anext(call)
        configs.append(ModelsConfig({}, {"*": "1"}))  # a reload without the profile
        async for _ in call:
            pass
    assert [(record.status, record.cost) for record in SqliteCallLog(tmp_path).latest(None, 9)] == [("completed", "2")]
    with pytest.raises(ModelError, match="used up its budget"):
        [chunk async for chunk in gateway.stream(request())]
