"""What an agent's code asks of its context in a wrong way: a clear error, and no further attempt.

Another attempt would ask for the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chronicle.canonical import MAX_DIGITS
from podium.agent import AgentContext, BaseAgent, Retry
from podium.testing import AgentHarness, HarnessOptions

Call = Callable[[Any], Any]
HUGE = {"n": 10**MAX_DIGITS}


async def _one() -> int:
    return 1


async def _refuse(ctx: Any) -> None:
    with pytest.raises(TypeError):
        await ctx.step("a", _one())
    ctx.reply(float("nan"))


CALLS: dict[str, tuple[Call, str, str]] = {
    "a cron line": (lambda ctx: ctx.remind("x", cron="nonsense"), "InvalidInput", "'nonsense' is not a cron line"),
    "a past time": (lambda ctx: ctx.remind("x", at="1999-01-01T00:00Z"), "InvalidInput", "is in the past"),
    "a reminder's message": (lambda ctx: ctx.remind("x", every=9, message=HUGE), "InvalidInput", "4,300 digits"),
    "a step's result": (lambda ctx: ctx.step("s", object), "InvalidValue", "a object is not JSON"),
    "a step's argument": (lambda ctx: ctx.step("s", len, {1}), "InvalidValue", "a set is not JSON"),
    "a coroutine": (lambda ctx: ctx.step("s", _one()), "WrongType", "ctx.step('s', _one, …)"),
    "no function": (lambda ctx: ctx.step("s", 5), "WrongType", "step 's' takes a function, not int"),
    "a step's name": (lambda ctx: ctx.step(5, _one), "WrongType", "a step's name is a text, not int"),
    "a policy": (lambda ctx: ctx.step("s", _one, retry=3), "WrongType", "retry=Retry(…), not int"),
    "an address": (lambda ctx: ctx.tell("nobody", {}), "InvalidAddress", "write type/key"),
    "no address": (lambda ctx: ctx.tell(5, {}), "WrongType", "tell takes an address"),
    "a type": (lambda ctx: ctx.tell("unknown/a", {}), "UnknownAgentType", "'unknown'"),
    "a large message": (lambda ctx: ctx.tell("wrong/a", HUGE), "InvalidInput", "at /n: an integer of more than 4,300"),
    "a timeout": (lambda ctx: ctx.ask("wrong/a", {}, timeout="5"), "WrongType", "a timeout in seconds"),
    "a large event": (lambda ctx: ctx.emit("x", HUGE), "InvalidInput", "at /n: an integer of more than 4,300 digits"),
    "an event's name": (lambda ctx: ctx.emit(5, {}), "WrongType", "the name of an event"),
    "a reply": (lambda ctx: ctx.send_message(5), "WrongType", "stream_token takes a string"),
    "a path": (lambda ctx: ctx.history(5), "WrongType", "a path of the workspace"),
    "an artifact": (lambda ctx: ctx.add_artifact("x", 5), "WrongType", "bytes, a str or a Path"),
    "a command line": (lambda ctx: ctx.run("ls -l"), "WrongType", "as a list, such as ['sh', '-c', 'make | tail']"),
    "no command": (lambda ctx: ctx.run([]), "WrongType", "a program and its arguments"),
    "a number in a command": (lambda ctx: ctx.run(["sleep", 5]), "WrongType", "texts and paths, not int"),
    "a zero byte": (lambda ctx: ctx.run(["ls", "\0"]), "InvalidInput", "has a zero byte"),
    "a command's input": (lambda ctx: ctx.run(["cat"], stdin=5), "WrongType", "bytes or a text, not int"),
    "a rung": (lambda ctx: ctx.run(["ls"], sandbox="docker"), "InvalidInput", "none, landlock, bubblewrap"),
    "a command's timeout": (lambda ctx: ctx.run(["ls"], timeout="soon"), "InvalidInput", "the timeout of a command"),
    "a working directory": (
        lambda ctx: ctx.run(["ls"], cwd="away"),
        "InvalidInput",
        "is no directory of the workspace",
    ),
    "a readable path": (lambda ctx: ctx.run(["ls"], readable=["/away"]), "SandboxRefused", "/away is to be readable"),
    "a relative path": (
        lambda ctx: ctx.run(["ls"], readable=["lib"]),
        "SandboxRefused",
        "a path of a sandbox is absolute",
    ),
    "a result": (_refuse, "InvalidValue", "JSON cannot hold nan"),
    "a step in a step": (
        lambda ctx: ctx.step("outer", lambda: ctx.step("inner", _one)),
        "ContextMisuse",
        "is called inside of step",
    ),
}


@pytest.mark.parametrize("name", CALLS)
async def test_wrong_use_is_told_once(name: str) -> None:
    call, kind, text = CALLS[name]
    attempts = 0

    class Wrong(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            nonlocal attempts
            attempts += 1
            called = call(ctx)
            if called is not None:
                await called

    async with AgentHarness(Wrong, options=HarnessOptions(known_types={"wrong"})) as agent:
        exchange = await agent.send("go")
        assert exchange.error is not None
        assert exchange.error["type"] == kind
        assert text in str(exchange.error["message"])
        assert (attempts, exchange.frames[-1]["parked"]) == (1, True)


async def test_the_effect_of_a_step_whose_result_is_not_json_happens_once() -> None:
    effects: list[str] = []

    def pay() -> object:
        effects.append("paid")
        return object()

    class Paying(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await ctx.step("pay", pay, retry=Retry(attempts=5, delay_s=0))
            effects.append("told")

    async with AgentHarness(Paying) as agent:
        assert (await agent.send("go")).error is not None
        assert effects == ["paid"]


async def test_a_policy_does_not_try_wrong_use_again() -> None:
    tries = 0

    class Trying(BaseAgent):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            async def tell() -> None:
                nonlocal tries
                tries += 1
                await ctx.tell("nobody", {})

            await ctx.step("tell", tell, retry=Retry(attempts=5, delay_s=0))

    async with AgentHarness(Trying) as agent:
        assert (await agent.send("go")).error is not None
        assert tries == 1


async def test_a_hook_without_a_message_that_replies_parks_the_message_behind_it() -> None:
    class Early(BaseAgent):
        async def on_init(self, ctx: AgentContext[Any]) -> None:
            ctx.reply("too early")

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            pass

    async with AgentHarness(Early) as agent:
        exchange = await agent.send("go")
        assert exchange.error is not None
        assert (exchange.error["type"], exchange.frames[-1]["attempt"]) == ("ContextMisuse", 1)
