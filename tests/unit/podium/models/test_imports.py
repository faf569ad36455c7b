"""Nobody pays for the libraries of vendors but the process that calls a model with them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from podium.errors import PodiumError
from podium.models.errors import ProviderNotInstalled
from podium.models.vendor_sdk import import_sdk

VENDORS = ["openai", "anthropic", "httpx2"]
RUN_AN_AGENT = """
import asyncio
from podium import BaseAgent, DeltaState
from podium.testing import AgentHarness
from podium.models import LLMMessage
from podium.models.scripted import ScriptedProvider


class Chat(BaseAgent):
    class State(DeltaState):
        said: int = 0

    async def on_message(self, ctx, message):
        async for chunk in ctx.llm("any").stream([LLMMessage("user", message["text"])]):
            ctx.state.said += 1


async def main():
    async with AgentHarness(Chat, models={"any": ScriptedProvider(["Hello you"])}) as agent:
        await agent.send({"text": "hi"})
        assert agent.state["said"] > 0


asyncio.run(main())
"""


@pytest.mark.parametrize(
    "code",
    [
        "import podium.agent",
        "from podium import *",
        "from podium.agent import *",
        "from podium.models import *",
        "import podium.models.openai_compat.provider, podium.models.anthropic.provider",
        "from podium.models.codec import *",
        "import coordinator.models.routing.call",
        RUN_AN_AGENT,
    ],
    ids=lambda code: code if "\n" not in code else "an agent that calls a scripted model",
)
def test_neither_import_nor_agent_brings_the_libraries_of_vendors(code: str) -> None:
    said = f"import sys\n{code}\nprint('loaded:', *[name for name in {VENDORS} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_a_library_that_is_not_installed_is_named_with_its_extra() -> None:
    with pytest.raises(
        ProviderNotInstalled, match=r"nothing is not installed: pip install 'podium\[nothing\]'"
    ) as caught:
        import_sdk("nothing")
    assert isinstance(caught.value, PodiumError)


def test_a_library_that_fails_to_import_is_not_called_missing() -> None:
    with pytest.raises(ModuleNotFoundError, match="of_its_own"):
        import_sdk("tests.unit.podium.models.broken_library")
