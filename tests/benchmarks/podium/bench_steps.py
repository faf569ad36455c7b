"""Steps, whole: function, drain, seal, record, through the code that hosts run.

A step that changes nothing is compared with one plain ``INSERT`` of the bytes of its record, WAL and
``synchronous=FULL``; one that writes a file of 4 KiB with a turn that writes it. Batches of each in turn, in the same
run; medians of the batches. A replay is of a turn with so many steps, against the turn that ran them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from tests.benchmarks.podium.turn_load import floor, harness, inserts_s

if TYPE_CHECKING:
    from podium.testing import AgentHarness
    from tests.benchmarks.__main__ import Row

ROUNDS = 10
BATCH = 100
FILE = b"x" * 4096


class Stepper(BaseAgent):
    """Times the steps of a message, or writes a file in its turn."""

    class State(DeltaState):
        count: int = 0

    took_s: ClassVar[float] = 0.0
    fails: ClassVar[bool] = False

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        path = ctx.workspace / "file.bin"

        def write(number: int) -> int:
            path.write_bytes(number.to_bytes(8, "big") + FILE[8:])
            return number

        began_s = time.perf_counter()
        if message["does"] == "nothing":
            for number in range(BATCH):
                await ctx.step("nothing", int, number)
        elif message["does"] == "files":
            for number in range(BATCH):
                await ctx.step("write", write, number)
        else:
            write(message["number"])
        type(self).took_s = time.perf_counter() - began_s
        if type(self).fails:
            type(self).fails = False
            raise ConnectionError("to be replayed")


def run() -> list[Row]:
    """Measure and return the rows."""
    return asyncio.run(_measured())


async def _measured() -> list[Row]:
    nothing, files, replays, inserts = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as home:
        directory = Path(home)
        with floor(directory) as database:
            async with harness(Stepper, directory) as agent:
                for _ in range(ROUNDS):
                    inserts.append(inserts_s(database, BATCH))
                    nothing.append(await _steps_s(agent, "nothing") / inserts[-1])
                    turns_s = await _turns_s(agent)
                    steps_s = await _steps_s(agent, "files")
                    files.append(steps_s / turns_s)
                    replays.append(await _replay_s(agent, "files") / steps_s)
    insert = f"a plain INSERT, {BATCH / median(inserts):.0f}/s"
    return [
        _row("step without state or file change", median(nothing), "<= 2.5", insert),
        _row("step with a file of 4 KiB", median(files), "<= 1", "a turn with it"),
        _row(f"replay of {BATCH} steps with files", median(replays), "", "the steps themselves"),
    ]


async def _steps_s(agent: AgentHarness, does: str) -> float:
    assert (await agent.send({"does": does})).ok
    return Stepper.took_s


async def _replay_s(agent: AgentHarness, does: str) -> float:
    """Return the seconds of a second attempt, whose steps all ended in the first."""
    Stepper.fails = True
    return await _steps_s(agent, does)


async def _turns_s(agent: AgentHarness) -> float:
    began_s = time.perf_counter()
    for number in range(BATCH):
        assert (await agent.send({"does": "turn", "number": number})).ok
    return time.perf_counter() - began_s


def _row(name: str, value: float, target: str, against: str) -> Row:
    return {"name": name, "value": round(value, 3), "unit": "x", "target": target, "floor": against}
