"""A typed handler against ``on_message`` with a dict of the same content: whole durable turns, batches of each in turn.

The argument is a model with texts, numbers and a list of models, 600 bytes; the result is a model, too.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from podium.agent import AgentContext, BaseAgent, DeltaState, handler
from tests.benchmarks.podium.turn_load import harness, turns_s

if TYPE_CHECKING:
    from tests.benchmarks.__main__ import Row

BATCHES = 100
BATCH = 10
INPUT: dict[str, Any] = {
    "text": "x" * 300,
    "limit": 10,
    "parts": [{"name": f"part {number}", "share": number / 7} for number in range(8)],
}


class Part(BaseModel):
    name: str
    share: float


class Query(BaseModel):
    text: str
    limit: int
    parts: list[Part]


class Hits(BaseModel):
    found: list[str]


class Plain(BaseAgent):
    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        ctx.reply({"found": [part["name"] for part in message["parts"]]})


class Typed(BaseAgent):
    class State(DeltaState):
        count: int = 0

    @handler
    async def search(self, ctx: AgentContext[State], query: Query) -> Hits:
        ctx.state.count += 1
        return Hits(found=[part.name for part in query.parts])


def run() -> list[Row]:
    """Measure and return the rows."""
    gc.collect()
    gc.freeze()
    ratio, plain_ms = asyncio.run(_measured())
    against = f"on_message with a dict of the same content, {plain_ms:.2f} ms a turn"
    return [{"name": "typed handler, durable turn", "value": ratio, "unit": "x", "target": "<= 1.1", "floor": against}]


async def _measured() -> tuple[float, float]:
    """Return the time of a typed turn over that of a plain one just before, and that one's in ms; medians."""
    plain_s, typed_s = [], []
    with (
        tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as of_plain,
        tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as of_typed,
    ):
        async with harness(Plain, Path(of_plain)) as plain, harness(Typed, Path(of_typed)) as typed:
            for _ in range(BATCHES):
                plain_s.append(await turns_s(plain, BATCH, INPUT))
                typed_s.append(await turns_s(typed, BATCH, {"handler": "search", "input": INPUT}))
    ratios = [typed / plain for typed, plain in zip(typed_s, plain_s, strict=True)]
    return round(median(ratios), 3), 1000 * median(plain_s) / BATCH
