"""Random programs of steps, with attempts that fail and hosts that die: the end is that of a run without any of it.

A program is data: changes of state and files, steps with changes in them, and groups of overlapping branches of them.
A fault ends an attempt at a place of the program, inside of a step, between steps, or at their ends. Each step that
ended runs once, and the committed agent equals that of a run without faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronicle.canonical import JsonObject
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.messages.inbox import list_inbox
from podium.testing import AgentHarness
from podium.turn import activation

Change: TypeAlias = tuple[str, str, int]
"""Where, which, and what: ``list`` and ``held`` append, ``dict`` and ``file`` set, ``log`` appends to a file."""


@dataclass(frozen=True)
class Step:
    """A step: what it does to the agent."""

    changes: tuple[Change, ...]
    pauses: int
    """How often the event loop runs meanwhile."""


@dataclass(frozen=True)
class Overlap:
    """Branches that run at once, each a sequence of steps, and what each does behind each of its steps."""

    branches: tuple[tuple[Step, ...], ...]


Program: TypeAlias = tuple[Change | Step | Overlap, ...]


class Lost(Exception):
    """A fault."""


@dataclass
class Run:
    """What happens to one run of a program."""

    program: Program
    faults: list[tuple[int, bool]]
    """When the attempts end, in places of the program from the beginning of each attempt, and whether the host dies."""
    passed: int = 0
    recorded: Callable[[], set[str]] = set
    """Returns the keys of the steps that have ended."""
    repeated: set[str] = field(default_factory=set)
    """Steps whose function was called after they had ended."""
    dying: asyncio.Event = field(default_factory=asyncio.Event)

    async def place(self) -> None:
        """Come to a place of the program, where the attempt may end."""
        self.passed += 1
        if self.faults and self.passed == self.faults[0][0]:
            _, dies = self.faults.pop(0)
            if not dies:
                raise Lost
            self.dying.set()
            await asyncio.Event().wait()


class Programmed(BaseAgent):
    """Runs a program."""

    class State(DeltaState):
        _entity_type = "programmed"
        numbers: list[int] = []
        notes: dict[str, int] = {}
        held: list[dict[str, list[int]]] = []

    max_attempts = 1000
    run: ClassVar[Run]

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        run = type(self).run
        run.passed = 0
        ctx.state.held.append({"items": []})
        held = ctx.state.held[-1]["items"]
        for at, part in enumerate(run.program):
            await run.place()
            if isinstance(part, Step):
                await self.step(ctx, f"{at}", part, held, "")
            elif isinstance(part, Overlap):
                async with asyncio.TaskGroup() as group:
                    for number, branch in enumerate(part.branches):
                        group.create_task(self.branch(ctx, f"{at}.{number}", branch, held))
            else:
                change(ctx, part, held, "")
        await run.place()

    async def branch(self, ctx: AgentContext[Any], name: str, steps: tuple[Step, ...], held: list[int]) -> None:
        for at, step in enumerate(steps):
            change(ctx, ("dict", "before", at), held, name)
            found = await self.step(ctx, f"{name}.{at}", step, held, name)
            change(ctx, ("dict", f"behind {at}", found), held, name)
            change(ctx, ("log", "log", at), held, name)

    async def step(self, ctx: AgentContext[Any], name: str, step: Step, held: list[int], branch: str) -> int:
        run = type(self).run

        async def work(number: int) -> int:
            run.repeated |= {name} & run.recorded()
            await run.place()
            for done in step.changes:
                change(ctx, done, held, branch)
            for _ in range(step.pauses):
                await asyncio.sleep(0)
            if not branch:
                await run.place()
            return number + len(step.changes)

        return await ctx.step(name, work, len(name))


def change(ctx: AgentContext[Any], done: Change, held: list[int], branch: str) -> None:
    """Change state or files; overlapping branches change parts of their own, and set them."""
    where, name, value = done
    if branch and where in ("list", "held"):
        where = "dict"
    if where == "list":
        ctx.state.numbers.append(value)
    elif where == "held":
        held.append(value)
    elif where == "dict":
        ctx.state.notes[f"{branch} {name}"] = value
    elif where == "log":
        with (ctx.workspace / f"{branch}{name}").open("a") as file:
            file.write(f"{value}\n")
    else:
        (ctx.workspace / f"{branch}{name}").write_text(f"{value}\n")


_changes = st.tuples(st.sampled_from(["list", "dict", "held", "file", "log"]), st.sampled_from("ab"), st.integers(0, 9))
_set = st.tuples(st.sampled_from(["dict", "file"]), st.sampled_from("ab"), st.integers(0, 9))
_steps = st.builds(Step, st.lists(_changes, max_size=4).map(tuple), st.integers(0, 3))
_side_steps = st.builds(Step, st.lists(_set, max_size=3).map(tuple), st.integers(0, 12))
_overlaps = st.builds(
    Overlap, st.lists(st.lists(_side_steps, min_size=1, max_size=3).map(tuple), min_size=2, max_size=3).map(tuple)
)
_programs = st.lists(st.one_of(_changes, _steps, _steps, _overlaps), min_size=1, max_size=6).map(tuple)
_faults = st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=5)


async def end_of(run: Run) -> tuple[JsonObject, dict[str, str]]:
    """Run a program to its end, and return the committed state and the files."""
    Programmed.run = run
    async with AgentHarness(Programmed) as agent:
        agent.admit("go")
        session = agent.store.session(agent.address.name)
        run.recorded = lambda: {
            step.key.removesuffix("#1") for step in agent.store.steps_of_session(session.session_id)
        }
        while True:
            run.dying.clear()
            attempt = asyncio.create_task(agent.activation.handle_next())
            death = asyncio.create_task(run.dying.wait())
            await asyncio.wait([attempt, death], return_when=asyncio.FIRST_COMPLETED)
            death.cancel()
            if run.dying.is_set():
                attempt.cancel()
                await asyncio.wait([attempt])
                await agent.kill()
            elif agent.activation.turn:
                break
            else:
                assert attempt.result() is activation.Step.RETRY, list_inbox(agent.store, agent.blobs, session)
        files = {path.name: path.read_text() for path in agent.workspace.iterdir()}
        return agent.state, files


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_programs, _faults)
def test_faults_do_not_change_the_end(program: Program, faults: list[tuple[int, bool]]) -> None:
    with asyncio.Runner() as runner:
        expected = runner.run(end_of(Run(program, [])))
        troubled = Run(program, list(faults))
        found = runner.run(end_of(troubled))
    assert found == expected
    assert not troubled.repeated
