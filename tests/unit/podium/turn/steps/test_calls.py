"""Calls of the functions of steps: keyword arguments, time limits, and results that are pydantic models."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from podium.agent import AgentContext, Retry
from podium.testing import AgentHarness
from tests.unit.podium.turn.steps.planned import Planned


class Price(BaseModel):
    cents: int = Field(alias="amount")
    tags: set[str] = set()


class Cheaper(Price):
    rebate: int = 0


def price(city: str, *, timeout: int = 0) -> Price:
    Planned.runs[city] += 1
    return Price(amount=len(city) + timeout, tags={city})


async def prices(*cities: str) -> list[Price] | None:
    return [price(city) for city in cities] or None


class Shop:
    async def __call__(self, city: str) -> Price:
        return price(city)


def untyped(city: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return price(city)


async def twice(program: Any) -> tuple[list[Any], list[Any]]:
    """Return what the steps of a program give in an attempt that fails behind them, and in the next one."""
    seen: list[list[Any]] = []

    async def run(_self: Planned, ctx: AgentContext[Any], _message: dict[str, Any]) -> None:
        found = await program(ctx)
        seen.append(found)
        if len(seen) == 1:
            raise ConnectionError("behind the steps")

    Planned.program, Planned.fail_after = run, ""
    async with AgentHarness(Planned) as agent:
        assert (await agent.send("go")).ok
    first, second = seen
    return first, second


async def test_a_model_is_a_model_in_each_attempt() -> None:
    async def program(ctx: AgentContext[Any]) -> list[Any]:
        return [
            await ctx.step("plain", price, "Oslo"),
            await ctx.step("async", prices, "Rome", "Bern"),
            await ctx.step("none", prices),
            await ctx.step("partial", partial(price, "Kyiv")),
            await ctx.step("callable", Shop(), "Bonn"),
            await ctx.step("given", lambda: price("Lima"), result=Price),
            await ctx.step("json", lambda: [{"amount": 1}], result=list[Price]),
        ]

    first, second = await twice(program)
    assert first == second
    assert first == [
        Price(amount=4, tags={"Oslo"}),
        [Price(amount=4, tags={"Rome"}), Price(amount=4, tags={"Bern"})],
        None,
        Price(amount=4, tags={"Kyiv"}),
        Price(amount=4, tags={"Bonn"}),
        Price(amount=4, tags={"Lima"}),
        [Price(amount=1)],
    ]
    assert set(Planned.runs.values()) == {1}


async def test_a_changed_result_is_the_programs_own() -> None:
    async def program(ctx: AgentContext[Any]) -> list[Any]:
        found = await ctx.step("price", price, "Oslo")
        found.cents += 1
        return [found, await ctx.step("again", price, "Oslo")]

    first, second = await twice(program)
    assert first == second
    assert [each.cents for each in first] == [5, 4]


async def test_keyword_arguments_are_the_functions() -> None:
    async def program(ctx: AgentContext[Any]) -> list[Any]:
        return [await ctx.step("price", price, "Oslo", kwargs={"timeout": 3}, timeout="10s")]

    first, second = await twice(program)
    assert first == second == [Price(amount=7, tags={"Oslo"})]
    assert Planned.runs["Oslo"] == 1


@pytest.mark.parametrize("other", [{"timeout": 2}, {}, {"timeout": 1, "city": "Oslo"}])
async def test_other_keyword_arguments_are_another_program(other: dict[str, Any]) -> None:
    given = [{"timeout": 1}, other]

    async def run(_self: Planned, ctx: AgentContext[Any], _message: dict[str, Any]) -> None:
        keywords = given.pop(0)
        await ctx.step("price", price, *([] if "city" in keywords else ["Oslo"]), kwargs=keywords)
        raise ConnectionError("behind the step")

    Planned.program, Planned.fail_after = run, ""
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
    assert asked.paused
    assert "with other arguments" in asked.frames[-1]["reason"]
    assert Planned.runs["Oslo"] == 1


async def test_models_are_arguments() -> None:
    given = [Price(amount=1), Price(amount=1)]

    async def program(ctx: AgentContext[Any]) -> list[Any]:
        return [await ctx.step("sum", lambda *prices: sum(each.cents for each in prices), *given)]

    assert await twice(program) == ([2], [2])


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (lambda ctx: ctx.step("a", untyped, "Oslo"), "annotate its function '-> Price', or give result=Price"),
        (
            lambda ctx: ctx.step("a", lambda: {"amount": "x"}, result=Price),
            "the result of step 'a#1' is not of its type",
        ),
        (lambda ctx: ctx.step("a", lambda: 1, result=AgentContext), "takes a type that pydantic knows"),
        (
            lambda ctx: ctx.step("a", price, "Oslo", kwargs=["timeout"]),
            "takes the keyword arguments of its function as a",
        ),
        (lambda ctx: ctx.step("a", price, "Oslo", timeout="soon"), "the timeout of step 'a' lasts more than 0 s"),
        (lambda ctx: ctx.step("a", price, "Oslo", timeout=-1), "timeout of step 'a' lasts more than 0 s"),
    ],
)
async def test_what_cannot_be_a_step(step: Any, problem: str) -> None:
    async def run(_self: Planned, ctx: AgentContext[Any], _message: dict[str, Any]) -> None:
        await step(ctx)

    Planned.program, Planned.fail_after = run, ""
    async with AgentHarness(Planned) as agent:
        sent = await agent.send("go")
    error: Any = sent.error
    assert problem in error["message"]
    assert sum(frame["type"] == "turn_retry" for frame in sent.frames) == 0


async def test_a_recorded_result_that_is_of_no_type_any_more() -> None:
    class Renamed(BaseModel):
        total: int

    attempts: list[type[BaseModel]] = [Price, Renamed]

    async def run(_self: Planned, ctx: AgentContext[Any], _message: dict[str, Any]) -> None:
        try:
            await ctx.step("price", price, "Oslo", result=attempts.pop(0))
        except Exception:  # noqa: BLE001  what the program does of it changes nothing
            return
        raise ConnectionError("behind the step")

    Planned.program, Planned.fail_after = run, ""
    async with AgentHarness(Planned) as agent:
        asked = await agent.send("go")
    assert asked.paused
    assert "is not of its type any more" in asked.frames[-1]["reason"]


async def test_a_try_that_takes_too_long_is_stopped_and_tried_again() -> None:
    stopped: list[str] = []

    async def hangs_once() -> str:
        if not stopped:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append("stopped")
        return "done"

    async def program(ctx: AgentContext[Any]) -> list[Any]:
        return [await ctx.step("call", hangs_once, timeout=0.05, retry=Retry(attempts=2, delay_s=0))]

    assert await twice(program) == (["done"], ["done"])
    assert stopped == ["stopped"]


async def test_a_step_that_took_too_long_is_an_error_that_the_program_may_handle() -> None:
    async def program(ctx: AgentContext[Any]) -> list[Any]:
        try:
            await ctx.step("call", asyncio.Event().wait, timeout=0.02)
        except TimeoutError as error:
            return [str(error), await ctx.step("instead", lambda: 1)]
        return []

    first, second = await twice(program)
    assert first == second == ["step 'call#1' took longer than its timeout of 0.02 s", 1]


class Base(BaseModel):
    a: int = 1


class Derived(Base):
    more: int = 2


class Other(BaseModel):
    a: int = 1


class Secret(BaseModel):
    token: SecretStr


class Whole(BaseModel):
    x: float = 1
    parts: tuple[int, ...] = (1, 2)
    names: set[str] = {"b", "a"}
    inner: list[Base] = [Base()]


@pytest.mark.parametrize(
    ("value", "result", "survives"),
    [
        (Whole(), Whole, True),
        (Derived(), Derived, True),
        (Derived(), Base, False),
        (Other(), Base | Other, False),
        (Secret(token=SecretStr("t0k")), Secret, False),
    ],
)
async def test_a_result_that_would_be_read_back_as_another_one_is_refused(
    value: object, result: Any, survives: bool
) -> None:
    async def program(self: Planned, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        assert await ctx.step("typed", lambda: value, result=result) == value

    Planned.program = program
    async with AgentHarness(Planned) as agent:
        exchange = await agent.send("go")
    assert exchange.ok == survives
    if exchange.error is not None:
        assert "does not survive JSON" in str(exchange.error["message"])
        assert "t0k" not in str(exchange.error)
