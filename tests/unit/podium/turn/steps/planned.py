"""An agent that runs the program of a test, and programs of steps."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness


class Planned(BaseAgent):
    """Runs the steps of a test's program; the class has what the program needs beyond its context."""

    class State(DeltaState):
        _entity_type = "planned"
        done: list[str] = []
        notes: dict[str, int] = {}
        items: list[dict[str, Any]] = []

    max_attempts = 3
    runs: ClassVar[Counter[str]] = Counter()
    fail_after: ClassVar[str] = ""
    program: ClassVar[Any] = None
    then: ClassVar[Any] = None
    """The program of later attempts."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await type(self).program(self, ctx, message)

    def fail_once(self, place: str) -> None:
        """Fail the attempt at a place of the program, once."""
        if type(self).fail_after == place:
            type(self).fail_after = ""
            raise ConnectionError(f"lost at {place}")


def ran(name: str, answer: Any = None) -> Any:
    Planned.runs[name] += 1
    return answer


async def three(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
    """Three steps with state and files in them, between them, and held across them."""

    def work(name: str, n: int) -> dict[str, int]:
        ran(name)
        ctx.state.done.append(name)
        ctx.state.items[-1][name] = n
        (ctx.workspace / f"{name}.txt").write_text(name * n)
        return {"n": n}

    ctx.state.items.append({"message": 1})
    held = ctx.state.items[-1]
    (ctx.workspace / "log.txt").write_text("begun\n")
    for n, name in enumerate(("a", "b", "c"), 1):
        found = await ctx.step(name, work, name, n)
        assert found == {"n": n}
        assert held[name] == n
        assert ctx.state.items[-1] is held
        held["after"] = n
        with (ctx.workspace / "log.txt").open("a") as log:
            log.write(f"{name}\n")
        self.fail_once(name)


def files(agent: AgentHarness) -> dict[str, str]:
    return {str(path.relative_to(agent.workspace)): path.read_text() for path in agent.workspace.rglob("*")}
