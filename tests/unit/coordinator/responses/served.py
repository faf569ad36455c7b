"""Responses of a home, whose models answer as a test has them, and what a client reads of them."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from coordinator.operations.stores import HomeStores
from coordinator.responses.body import ResponseBody
from coordinator.responses.responses import HomeResponses

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chronicle.clock import Clock
    from coordinator.home import Home
    from coordinator.responses.run import ResponseRun
    from tests.unit.coordinator.responses.model_calls import TestModels

__all__ = ["body", "served", "streamed"]


def no_sessions(*_: object) -> Any:
    raise AssertionError("no session is read")


@asynccontextmanager
async def served(
    home: Home, models: TestModels, stores: HomeStores | None = None, clock: Clock | None = None
) -> AsyncIterator[HomeResponses]:
    stores = stores or HomeStores(home)
    try:
        async with HomeResponses(stores, no_sessions, models, clock or ManualClock(), IdSource()) as responses:
            yield responses
    finally:
        stores.close()


def body(text: Any = "hi", **fields: Any) -> ResponseBody:
    return ResponseBody.model_validate({"model": "code.fast", "input": text, **fields})


async def streamed(run: ResponseRun) -> list[dict[str, Any]]:
    sent = b""
    with run.open() as reader:
        while events := await reader.next():
            sent += b"".join(each.event for each in events)
        assert reader.is_complete
    *frames, end, nothing = sent.decode().split("\n\n")
    assert (end, nothing) == ("data: [DONE]", "")
    found = []
    for frame in frames:
        name, _, data = frame.partition("\ndata: ")
        found.append(json.loads(data))
        assert name == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found
