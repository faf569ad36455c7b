"""``podium turns`` on a home whose service does not run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness
from tests.unit.coordinator.cli.cli_home import PLACES, HomeMaker, Podium, podium_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Worker(BaseAgent):
    """Works in steps, and writes a file."""

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        (ctx.workspace / "out.txt").write_text(message["text"])
        await ctx.step("note", self.note)
        try:
            await ctx.step("fail", self.fail)
        except ValueError:
            return

    async def note(self) -> int:
        return 1

    async def fail(self) -> None:
        raise ValueError("no")


async def work(maker: HomeMaker) -> None:
    async with AgentHarness(Worker, "a", store=maker.store, blobs=maker.blobs, clock=maker.clock) as agent:
        for text in ("one", "two"):
            assert (await agent.send(text)).ok


@pytest.fixture
def made(tmp_path: Path) -> Iterator[HomeMaker]:
    maker = HomeMaker(tmp_path / "home")
    asyncio.run(work(maker))
    yield maker
    maker.close()


@pytest.fixture(params=PLACES)
def podium(request: pytest.FixtureRequest, made: HomeMaker, capsys: pytest.CaptureFixture[str]) -> Iterator[Podium]:
    with podium_at(request.param, made.path, capsys) as podium:
        yield podium


def test_turns_are_listed(podium: Podium) -> None:
    headings, created, one, two = podium("turns", "worker/a").splitlines()
    assert headings.split() == ["TURN", "BEGAN", "TOOK", "CAUSE", "PATCH", "FILES", "STEPS", "MESSAGE"]
    assert created.split()[:1] + created.split()[2:] == ["0", "0", "ms", "created", "11", "0", "0", "-"]
    found = podium.json("turns", "worker/a")
    assert (found["agent"], found["remaining"], len(found["turns"])) == ("worker/a", 0, 3)
    for number, line in ((1, one), (2, two)):
        turn = found["turns"][number]
        shown = line.split()
        assert shown[0] == str(turn["turn"]) == str(number)
        assert shown[-7:] == ["message", str(turn["patch_bytes"]), "1", "2", "(1", "failed)", turn["message_id"]]
        assert [(step["key"], step["status"]) for step in turn["steps"]] == [("note#1", "done"), ("fail#1", "failed")]


def test_an_agent_that_does_not_exist_has_none(podium: Podium) -> None:
    podium("turns", "worker/none", code=ExitCode.UNKNOWN_AGENT)
    assert podium.err.startswith("podium: no agent worker/none")
