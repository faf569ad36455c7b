"""Calls of models by a host's agents, as they arrive at the socket of the model gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from coordinator.channel import pack, read_packet
from coordinator.host.host_models import HostModels
from coordinator.models.wire import object_of, request_from_json
from podium.address import Address
from podium.models import LLMMessage, ModelError
from podium.models.codec import error_to_json
from podium.models.quality import QualityOfService
from podium.turn.ports import ModelCall

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.models.calls import ModelRequest


async def test_a_deadline_counts_from_the_agents_call(tmp_path: Path) -> None:
    """The start of the gateway, for which a connection may wait, is in it."""
    asked: list[ModelRequest] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(request_from_json(object_of(await read_packet(reader) or b"")["request"]))
        writer.write(pack({"error": error_to_json(ModelError("too late", "deadline_exceeded"))}))
        writer.close()

    clock = ManualClock()
    clock.advance(5)
    soon = QualityOfService(deadline_ms=300)
    async with await asyncio.start_unix_server(answer, tmp_path / "models.sock"):
        models = HostModels(tmp_path / "models.sock", IdSource(), clock)
        messages = [LLMMessage("user", "hi")]
        call = ModelCall(Address.parse("hello/alice"), 1, "code.fast", messages, None, None, None, soon, None)
        with pytest.raises(ModelError, match="too late"):
            await anext(models.stream(call))
    assert [(each.asked_s, each.qos.deadline_ms) for each in asked] == [(5.0, 300)]
