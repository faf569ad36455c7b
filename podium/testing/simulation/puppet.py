"""`Puppet`, an agent scripted by its messages, and `expect`, the model of its turns.

The operations are implemented twice: with tracked state, files and awaits, and with plain dictionaries. The simulator
compares the two at every commit.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from pydantic import BaseModel

from podium.agent.base import BaseAgent
from podium.agent.handlers import handler
from podium.agent.models.delta_state import DeltaState
from podium.reminders.times import from_ms

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from chronicle.canonical import JsonObject
    from podium.agent.context import AgentContext

__all__ = ["CROWD", "KEYS", "NOBODY", "STAGE", "Expected", "Puppet", "Stage", "expect", "script"]

KEYS: Final = ("alice", "quiet-bob")
"""The agents that may exist from the start, and that others send messages to."""
CROWD: Final = ("quiet-carol", "quiet-dan", "quiet-erin", "quiet-frank")
"""Further agents of crowded runs."""
_PATHS: Final = ("a.txt", "b.txt", "c.txt")
_REMINDERS: Final = ("tea", "walk")
_NOT_IN_STEPS: Final = frozenset({"remind", "forget", "ask", "decide", "nap"})
NOBODY: Final = -1
"""What a decision is that nobody makes in time."""


_PATIENCE_S: Final = 2.0
"""For an answer, less than for the turn."""


class Stage(Protocol):
    """Interface of a simulation for the hooks of a puppet."""

    def files(self, root: Path) -> MutableMapping[str, str]:
        """Return the files of a workspace; raises in a dead process."""
        ...

    def count_attempt(self, number: int) -> int:
        """Count an attempt of a message, and return the number of earlier ones."""
        ...

    def run_step(self, number: int, name: str) -> int:
        """Return a number that no other run of a step returns; the step must not have ended before."""
        ...

    def next_run(self) -> int:
        """Return a number that no other call returns."""
        ...

    def now_ms(self) -> int:
        """Return the time, in epoch milliseconds."""
        ...


STAGE: ContextVar[Stage] = ContextVar("STAGE")


class Look(BaseModel):
    """The argument of `Puppet.look`: none."""


class Seen(BaseModel):
    """What a read of a puppet sees."""

    log: list[int]
    table: dict[str, int]


class Puppet(BaseAgent):
    """Executes the script in each message: ``{"number": 7, "do": [["write", "a.txt", "text"], ...]}``."""

    turn_timeout_s = 3.0
    idle_timeout_s = 4.0
    shutdown_timeout_s = 1.0

    class State(DeltaState):
        """Its state."""

        _entity_type = "puppet"
        log: list[int] = []  # noqa: RUF012 - copied for each instance
        table: dict[str, int] = {}  # noqa: RUF012
        items: list[dict[str, int]] = []  # noqa: RUF012
        inits: int = 0
        idles: int = 0
        steered: list[int] = []  # noqa: RUF012

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        if _has_hooks(ctx.key):
            ctx.state.inits += 1
            STAGE.get().files(ctx.workspace)["init.txt"] = str(ctx.state.inits)

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        earlier = STAGE.get().count_attempt(message["number"])
        ctx.state.log.append(message["number"])
        for name, *arguments in message["do"]:
            await self._do(ctx, message["number"], earlier, name, arguments)

    @handler(read_only=True)
    async def look(self, ctx: AgentContext[Any], _: Look) -> Seen:
        """Return the state of the last commit, after a while."""
        await asyncio.sleep(0.2)
        return Seen(log=list(ctx.state.log), table=dict(ctx.state.table))

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.steered.append(message["number"])
        await asyncio.sleep(0.05)
        await ctx.send_message(f"steered by {message['number']}")
        if any(step[0] == "raise" for step in message["do"]):
            raise ValueError("it would not be steered")

    async def on_idle_timeout(self, ctx: AgentContext[Any]) -> bool:
        if _has_hooks(ctx.key):
            ctx.state.idles += 1
        return bool(ctx.state.idles % 3 != 1)

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        if _has_hooks(ctx.key):
            STAGE.get().files(ctx.workspace)["bye.txt"] = str(len(ctx.state.log))

    async def _step(self, ctx: AgentContext[Any], message: int, earlier: int, step: str, inner: list[Any]) -> int:
        """Do the operations of a step, and leave in state, files and result which of its runs this is."""
        run = STAGE.get().run_step(message, step)
        for name, *arguments in inner:
            await self._do(ctx, message, earlier, name, arguments)
        STAGE.get().files(ctx.workspace)[f"{step}.txt"] = str(run)
        ctx.state.items.append({"value": run})
        return run

    async def _do(self, ctx: AgentContext[Any], message: int, earlier: int, name: str, arguments: list[Any]) -> None:
        files = STAGE.get().files(ctx.workspace)
        match name, arguments:
            case "put", [key, value]:
                ctx.state.table[key] = value
            case "drop", [key]:
                ctx.state.table.pop(key, None)
            case "add", [value]:
                ctx.state.items.append({"value": value})
            case "trim", []:
                del ctx.state.items[:2]
            case "turn", []:
                ctx.state.items.reverse()
            case "write", [path, text]:
                files[path] = text
            case "delete", [path]:
                files.pop(path, None)
            case "say", [text]:
                await ctx.send_message(text)
            case "tell", [agent, told]:
                await ctx.tell(agent, told)
            case "tell", [agent, told, after_s]:
                await ctx.tell(agent, told, after=after_s)
            case "ask", [agent, question]:
                answer = await ctx.ask(agent, question, timeout=_PATIENCE_S)
                ctx.state.table["asked"] = answer.data["run"]
            case "answer", []:
                ctx.reply({"run": STAGE.get().next_run()})
            case "remind", [reminder, delay_ms, reminding]:
                due = from_ms(STAGE.get().now_ms() + delay_ms)
                await ctx.remind(reminder, at=due, message=reminding)
            case "forget", [reminder]:
                await ctx.cancel_reminder(reminder)
            case "decide", [timeout]:
                decided = await ctx.decide({"type": "integer"}, reason="which?", timeout=timeout, default=NOBODY)
                ctx.state.table["decided"] = cast("int", decided)
            case "nap", [seconds]:
                await ctx.sleep(seconds)
                ctx.state.items.append({"value": 0})
            case "wait", [seconds]:
                await asyncio.sleep(seconds)
            case "step", [step, inner]:
                run = await ctx.step(step, lambda: self._step(ctx, message, earlier, step, inner))
                ctx.state.table[step] = run
            case "stubborn", []:
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.1)
            case "raise", [times] if earlier < times:
                raise ValueError(f"try {earlier + 1}")
            case "exit", [times] if earlier < times:
                raise SystemExit(3)
            case "hang", [times] if earlier < times:
                await asyncio.Event().wait()
            case "nan", [times] if earlier < times:
                ctx.state.table["nan"] = cast("int", math.nan)
            case "surrogate", [times] if earlier < times:
                await ctx.emit("surrogate", {"text": "\udcff"})


def _has_hooks(key: str) -> bool:
    """Whether a puppet's other hooks change something; those of quiet puppets must not make turns."""
    return not key.startswith("quiet")


def script(
    generator: random.Random,
    number: int,
    *,
    with_steps: bool = False,
    with_pauses: bool = False,
    asks: str | None = None,
) -> JsonObject:
    """Return a message for a puppet.

    Args:
        with_steps: it has some of its operations in steps.
        with_pauses: its turn may wait for a decision, or sleep.
        asks: it may ask this agent.
    """
    tellings = itertools.count(1)

    def told() -> JsonObject:
        return {"number": 1000 * next(tellings) + number, "do": [["say", "told"], ["add", number]]}

    def reminding() -> JsonObject:
        return {"number": 1_000_000 * next(tellings) + number, "do": [["say", "reminded"], ["add", number]]}

    delay = [number % 7 * 0.4 + 0.1] if number % 3 == 0 else []
    kinds: tuple[Callable[[], list[Any]], ...] = (
        lambda: ["put", f"k{generator.randrange(4)}", generator.randrange(100)],
        lambda: ["drop", f"k{generator.randrange(4)}"],
        lambda: ["add", generator.randrange(100)],
        lambda: ["trim"],
        lambda: ["turn"],
        lambda: ["write", generator.choice(_PATHS), f"message {number}, {generator.randrange(1000)}"],
        lambda: ["delete", generator.choice(_PATHS)],
        lambda: ["say", f"words of {number}"],
        lambda: ["tell", f"puppet/{generator.choice(KEYS)}", told(), *delay],
        lambda: ["remind", generator.choice(_REMINDERS), generator.randrange(100, 3_000), reminding()],
        lambda: ["forget", generator.choice(_REMINDERS)],
        lambda: ["wait", generator.random() * 0.5],
        lambda: ["stubborn"],
    )
    steps = [generator.choice(kinds)() for _ in range(generator.randrange(1, 6))]
    if generator.random() < 0.25:
        trouble = generator.choice(("raise", "raise", "exit", "hang", "nan", "surrogate"))
        steps.insert(generator.randrange(len(steps) + 1), [trouble, generator.choice((1, 1, 2, 9))])
    if asks is not None and generator.random() < 0.6:
        question = {"number": 100_000_000 + number, "do": [["say", "asked"], ["add", number], ["answer"]]}
        steps.insert(generator.randrange(len(steps) + 1), ["ask", asks, question])
    if with_pauses and generator.random() < 0.5:
        timeout = generator.choice((None, None, 0.3, 2, 5))
        steps.insert(generator.randrange(len(steps) + 1), ["decide", timeout])
    if with_pauses and generator.random() < 0.3:
        steps.insert(generator.randrange(len(steps) + 1), ["nap", generator.random() * 3 + 0.01])
    if with_steps:
        for place in range(len(steps)):
            if generator.random() < 0.6 and steps[place][0] not in _NOT_IN_STEPS:
                steps[place] = ["step", f"s{place}", [steps[place]]]
    return cast("JsonObject", {"number": number, "do": steps})


_FIRST: Final[dict[str, Any]] = {"log": [], "table": {}, "items": [], "inits": 0, "idles": 0, "steered": []}


@dataclass(slots=True)
class Expected:
    """The expected state of a puppet after some turns."""

    state: dict[str, Any] = field(default_factory=lambda: dict(_FIRST))
    files: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    """The replies of the last turn."""
    told: list[tuple[str, Any]] = field(default_factory=list)
    """Messages of the last turn to other agents: address and body."""
    told_later: list[tuple[str, Any]] = field(default_factory=list)
    """Those that are sent later."""
    reminders: dict[str, Any] = field(default_factory=dict)
    """The reminders that the last turn set, by name: the message, or ``None`` of one that it cancelled."""


def expect(
    before: Expected,
    cause: str,
    message: JsonObject | None,
    steered: Sequence[JsonObject] = (),
    runs: Mapping[str, int] = MappingProxyType({}),
) -> Expected:
    """Return the expectation after a turn; ``before`` is not changed.

    Args:
        steered: messages that steered the turn.
        runs: the durable result of each step of the message, by its name.

    Raises:
        KeyError: the message has a step without a result.
    """
    log, table, items = list(before.state["log"]), dict(before.state["table"]), list(before.state["items"])
    heard = [*before.state["steered"], *(handed["number"] for handed in steered)]
    state = {**before.state, "log": log, "table": table, "items": items, "steered": heard}
    after = Expected(state, dict(before.files))
    match cause:
        case "init":
            state["inits"] += 1
            after.files["init.txt"] = str(state["inits"])
        case "idle":
            state["idles"] += 1
        case "shutdown":
            after.files["bye.txt"] = str(len(log))
    if message is not None:
        log.append(message["number"])
        todo = list(reversed(cast("list[list[Any]]", message["do"])))
        while todo:
            name, *arguments = todo.pop()
            match name, arguments:
                case "step", [step, inner]:
                    todo += [["ended", step], *reversed(inner)]
                case "ended", [step]:
                    items.append({"value": runs[step]})
                    table[step] = runs[step]
                    after.files[f"{step}.txt"] = str(runs[step])
                case "put", [key, value]:
                    table[key] = value
                case "drop", [key]:
                    table.pop(key, None)
                case "add", [value]:
                    items.append({"value": value})
                case "trim", []:
                    del items[:2]
                case "turn", []:
                    items.reverse()
                case "write", [path, text]:
                    after.files[path] = text
                case "delete", [path]:
                    after.files.pop(path, None)
                case "say", [text]:
                    after.said.append(text)
                case "decide", [_]:
                    table["decided"] = runs["decide"]
                case "nap", [_]:
                    items.append({"value": runs["sleep"]})
                case "ask", [agent, _]:
                    table["asked"] = runs[f"ask {agent}"]
                case "remind", [reminder, _, reminding]:
                    after.reminders[reminder] = reminding
                case "forget", [reminder]:
                    after.reminders[reminder] = None
                case "tell", [agent, told]:
                    after.told.append((agent, told))
                case "tell", [agent, told, _]:
                    after.told_later.append((agent, told))
    return after
