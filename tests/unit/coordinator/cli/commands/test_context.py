"""``podium context`` on a home whose service does not run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from podium.agent import AgentContext, BaseAgent
from podium.history.erase import erase_messages
from podium.models import LLMMessage
from podium.models.scripted import ScriptedProvider
from podium.testing import AgentHarness
from tests.unit.coordinator.cli.cli_home import PLACES, HomeMaker, Podium, podium_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER: dict[str, Any] = {
    "text": "I add.",
    "reasoning": "Easy.",
    "tool_calls": [{"name": "add", "arguments": {"a": 1}}],
    "usage": {"input_tokens": 7, "output_tokens": 2},
}


class Asker(BaseAgent):
    """Asks a model what it is asked, or nothing."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if message["text"] != "nothing":
            asked = [LLMMessage("system", "Be brief."), LLMMessage("user", message["text"])]
            await ctx.llm("fast").answer(asked, tools=[{"name": "add"}], temperature=0.5)


async def work(maker: HomeMaker) -> None:
    models = {"fast": ScriptedProvider([ANSWER])}
    async with AgentHarness(
        Asker, "a", store=maker.store, blobs=maker.blobs, clock=maker.clock, models=models
    ) as agent:
        for text in ("What is one and one?", "Tell me my own secret", "nothing"):
            assert (await agent.send(text)).ok
        (_, secret, _) = [event for event, _ in agent.events("user_message")]
        erase_messages(agent.store, agent.address, [secret.event_id])


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


def test_the_context_of_a_turn_is_shown(podium: Podium) -> None:
    assert podium("context", "asker/a@1").splitlines() == [
        "call 1: fast, done, 7 tokens sent, 0 from the cache, 2 back",
        "  system: Be brief.",
        "  user: What is one and one?",
        "  tools: add",
        "  > thinking: Easy.",
        '  > assistant: I add. add({"a":1})',
    ]
    found = podium.json("context", "asker/a@1")
    assert (found["agent"], found["turn"]) == ("asker/a", 1)
    (call,) = found["calls"]
    assert call["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is one and one?"},
    ]
    assert (call["tools"], call["temperature"], call["answer"]["finished"]["reason"]) == (
        [{"name": "add"}],
        0.5,
        "tool_calls",
    )


def test_without_a_turn_the_last_one_with_calls_is_shown_and_what_was_erased_is_missing(podium: Podium) -> None:
    found = podium.json("context", "asker/a")
    assert found["turn"] == 2
    assert found["calls"][0]["messages"] == [{"role": "system", "content": "Be brief."}, None]
    assert "(erased)" in podium("context", "asker/a")
    assert podium.json("context", "asker/a@3") == {"agent": "asker/a", "turn": 3, "calls": []}


def test_a_turn_that_there_is_not_is_refused(podium: Podium) -> None:
    podium("context", "asker/a@9", code=ExitCode.UNKNOWN_MOMENT)
