"""The providers against the vendors' own servers: text, tools, reasoning that goes back, and errors.

| variables | what is asked |
|---|---|
| ``OPENAI_API_KEY``, ``PODIUM_LIVE_OPENAI`` (model, by default gpt-5-mini) | OpenAI, both formats |
| ``ANTHROPIC_API_KEY``, ``PODIUM_LIVE_ANTHROPIC`` (model, by default claude-haiku-4-5) | Anthropic |
| ``PODIUM_LIVE_URL``, ``PODIUM_LIVE_MODEL`` | any server with chat completions, such as Ollama |
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from podium.models.anthropic.provider import AnthropicProvider
from podium.models.collecting import collect
from podium.models.errors import ModelError
from podium.models.openai_compat.provider import OpenAICompatProvider, OpenAIResponsesProvider
from podium.models.port import LLMMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.live

Provider = OpenAICompatProvider | AnthropicProvider
ADD: dict[str, Any] = {
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


def make(which: str, key: str | None) -> Provider:
    match which:
        case "openai":
            return OpenAICompatProvider(os.environ.get("PODIUM_LIVE_OPENAI", "gpt-5-mini"), api_key=key)
        case "openai-responses":
            return OpenAIResponsesProvider(os.environ.get("PODIUM_LIVE_OPENAI", "gpt-5-mini"), api_key=key)
        case "anthropic":
            model = os.environ.get("PODIUM_LIVE_ANTHROPIC", "claude-haiku-4-5")
            thinking: Any = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
            return AnthropicProvider(model, api_key=key, extra=thinking)
    return OpenAICompatProvider(os.environ["PODIUM_LIVE_MODEL"], base_url=os.environ["PODIUM_LIVE_URL"], api_key=key)


VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "server": "PODIUM_LIVE_URL",
}


@pytest.fixture(params=list(VARIABLES))
def which(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not os.environ.get(VARIABLES[name]):
        pytest.skip(f"{VARIABLES[name]} is not set")
    return name


@pytest.fixture
async def provider(which: str) -> AsyncIterator[Provider]:
    made = make(which, None if which == "server" else os.environ[VARIABLES[which]])
    yield made
    await made.aclose()


# S1.38, S1.39
async def test_a_text(provider: Provider) -> None:
    answered = await collect(provider.stream([LLMMessage("user", "Say the word podium, and nothing else.")]))
    assert "podium" in answered.message.text.lower()
    assert answered.usage.input_tokens > 0
    assert answered.usage.output_tokens > 0
    assert answered.finished is not None
    assert answered.finished.reason == "stop"


async def test_a_tool_and_its_result(provider: Provider) -> None:
    talk = [LLMMessage("user", "Use the tool to add 1234 and 4321, then tell the sum, without separators.")]
    called = await collect(provider.stream(talk, tools=[ADD]))
    (call,) = called.message.tool_calls
    assert call.arguments == {"a": 1234, "b": 4321}
    talk += [called.message, LLMMessage("tool", "5555", tool_call_id=call.id)]
    answered = await collect(provider.stream(talk, tools=[ADD]))
    assert "5555" in answered.message.text


async def test_a_wrong_key(which: str) -> None:
    if which == "server":
        pytest.skip("a server of one's own need not look at keys")
    provider = make(which, "sk-wrong")
    with pytest.raises(ModelError) as caught:
        await collect(provider.stream([LLMMessage("user", "Hello")]))
    assert (caught.value.kind, caught.value.status) == ("auth", 401)
    await provider.aclose()
