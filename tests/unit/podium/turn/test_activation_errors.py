"""What user code raises while its agent is woken becomes an error of ours, which every process knows."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.errors import AgentLoadError
from podium.testing import AgentHarness


class UsersOwn(Exception):
    """An exception that only the user's code knows."""


def no_default() -> int:
    raise UsersOwn("no default today")


class Echo(BaseAgent):
    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        """Do nothing."""


class Unmade(Echo):
    def __init__(self) -> None:
        raise UsersOwn("no key")


class Ends(Echo):
    def __init__(self) -> None:
        raise SystemExit(3)


class Stateless(Echo):
    class State(DeltaState):
        n: int = Field(default_factory=no_default)


@pytest.mark.parametrize(
    ("agent_class", "says"),
    [
        (Unmade, "Unmade.__init__ raised UsersOwn: no key"),
        (Ends, "Ends.__init__ raised SystemExit: 3"),
        (Stateless, "building a new Stateless.State raised UsersOwn: no default today"),
    ],
)
async def test_what_the_class_raises_while_it_is_made(agent_class: type[BaseAgent], says: str) -> None:
    harness = AgentHarness(agent_class)
    with pytest.raises(AgentLoadError) as raised:
        await harness.__aenter__()
    await harness.__aexit__(None, None, None)
    assert type(raised.value) is AgentLoadError
    assert str(raised.value) == says
    assert "Traceback" in raised.value.detail
