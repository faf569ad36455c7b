"""Calls of tools without a host: results, refusals, and tools that misbehave (S1.40–S1.42, S4.2, S4.30)."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncGenerator
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from podium.agent import Retry
from podium.errors import InvalidTool
from podium.tools import ToolCall, ToolResult, ToolRouter, tool
from podium.tools import running as running_module


def _called(router: ToolRouter, name: str, arguments: Any = None, **options: Any) -> ToolResult:
    call = ToolCall("call_1", name, {} if arguments is None else arguments)
    return asyncio.run(router.dispatch(call, **options))


def test_s1_40_a_tool_is_an_async_function_with_its_schema_from_the_signature() -> None:
    router = ToolRouter()

    @tool(router=router, description="Finds pages.", mode="read")
    async def search(query: str, limit: int = 5) -> list[str]:
        return [query] * limit

    assert router.definitions == [
        {
            "name": "search",
            "description": "Finds pages.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 5}},
                "required": ["query"],
                "additionalProperties": False,
            },
            "mode": "read",
        }
    ]
    assert asyncio.run(search("a", 1)) == ["a"], "the function stays as it is"


def test_s1_41_dispatch_answers_with_the_fields_of_the_wire() -> None:
    router = ToolRouter()

    @tool(router=router, mode="read")
    async def add(a: int, b: int) -> int:
        return a + b

    result = _called(router, "add", {"a": 1, "b": 2})
    assert (result.success, result.terminal, result.needsFollowup, result.error) == (True, False, False, None)
    assert (result.message, result.data["value"]) == ("3", 3)
    assert isinstance(result.data["durationMs"], int)


@pytest.mark.parametrize("mode", ["local", "destructive"])
def test_s1_42_local_and_destructive_tools_need_consent(mode: str) -> None:
    router, calls = ToolRouter(), []

    @tool(router=router, mode=mode)
    async def erase() -> str:
        calls.append(1)
        return "gone"

    refused = _called(router, "erase")
    assert (refused.success, refused.error) == (False, "Tool 'erase' requires explicit consent")
    assert (refused.data, calls) == ({"refused": "consent"}, [])
    assert _called(router, "erase", consent_granted=True).message == "gone"


def test_s1_42_require_consent_overrides_the_mode() -> None:
    router = ToolRouter()

    @tool(router=router, mode="destructive", require_consent=False)
    async def tidy() -> str:
        return "tidied"

    @tool(router=router, mode="read", require_consent=True)
    async def peek() -> str:
        return "seen"

    assert _called(router, "tidy").success
    assert _called(router, "peek").data == {"refused": "consent"}


def test_an_unknown_mode_is_kept_and_counts_as_write() -> None:
    router = ToolRouter()

    @tool(router=router, mode="bogus")
    async def odd() -> str:
        return "done"

    assert router.definitions[0]["mode"] == "bogus"
    assert not router.tools["odd"].is_read
    assert _called(router, "odd").success


class Approval(BaseModel):
    approved: bool


def test_s4_2_a_tool_with_a_decision_is_declared_and_refused() -> None:
    router, calls = ToolRouter(), []

    @tool(router=router, decision=Approval)
    async def pay() -> None:
        calls.append("pay")

    @tool(router=router, decision={"enum": ["now", "later"]})
    async def plan() -> None:
        calls.append("plan")

    assert router.definitions[0]["decision"] == Approval.model_json_schema()
    assert router.definitions[1]["decision"] == {"enum": ["now", "later"]}
    for name in ("pay", "plan"):
        assert _called(router, name, consent_granted=True).data == {"refused": "decision"}
    assert calls == []


def test_a_tool_that_needs_approval_is_refused_until_it_can_be_asked_for() -> None:
    router, calls = ToolRouter(), []

    @tool(router=router, requires_approval=True)
    async def send() -> None:
        calls.append(1)

    assert router.definitions[0]["requires_approval"] is True
    assert _called(router, "send", consent_granted=True).data == {"refused": "approval"}
    assert calls == []


def test_s4_30_a_tool_of_the_client_is_declared_and_not_run_here() -> None:
    router, calls = ToolRouter(), []

    @tool(router=router, runs="client")
    async def locate() -> None:
        calls.append(1)

    assert router.definitions[0]["runs"] == "client"
    assert _called(router, "locate", consent_granted=True).data == {"refused": "client"}
    assert calls == []


def test_an_unknown_tool_is_told_with_those_that_there_are() -> None:
    router = ToolRouter()

    @tool(router=router)
    async def search() -> None: ...

    result = _called(router, "serch")
    assert result.error == "Unknown tool: serch. Available tools: search"
    assert (result.needsFollowup, result.data) == (True, {"unknownTool": "serch", "suggestions": ["search"]})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "count: field required"),
        ({"count": "many"}, "count: input should be a valid integer"),
        ({"count": 1, "colour": "red"}, "colour: extra inputs are not permitted"),
        ({"count": 1, "box": {"size": "big"}}, "box.size: input should be a valid integer"),
        ("{not json", "the arguments are no JSON"),
        ("[1]", "the arguments are a JSON object, not list"),
        ({"count": float("nan")}, "count: input should be a finite number"),
        ({"count": 1, "box": "\ud800"}, "the arguments are no JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_their_field(arguments: Any, told: str) -> None:
    class Box(BaseModel):
        size: int

    router, calls = ToolRouter(), []

    async def put(count: int, box: Any = None) -> None:
        calls.append(count)

    put.__annotations__["box"] = Box | None
    router.add(put)
    result = _called(router, "put", arguments)
    assert (result.success, result.needsFollowup, calls) == (False, True, [])
    assert told in (result.error or "")


def test_the_text_that_a_model_wrote_instead_of_json_is_told() -> None:
    router = ToolRouter()

    @tool(router=router)
    async def put(count: int) -> None: ...

    call = ToolCall("c", "put", {}, invalid_arguments='{"count": 1')
    result = asyncio.run(router.dispatch(call))
    assert "the arguments are no JSON" in (result.error or "")


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    side: float


def test_a_discriminated_union_is_in_the_schema_and_reaches_the_function_as_a_model() -> None:
    router = ToolRouter()

    @tool(router=router)
    async def area(shape: Annotated[Circle | Square, Field(discriminator="kind")], on: date) -> str:
        return f"{type(shape).__name__} {on.year}"

    shape: Any = router.definitions[0]["parameters"]
    assert shape["properties"]["shape"]["discriminator"]["propertyName"] == "kind"
    given = {"shape": {"kind": "square", "side": 2}, "on": "2026-11-28"}
    assert _called(router, "area", given).message == "Square 2026"
    wrong = _called(router, "area", {"shape": {"kind": "line"}, "on": "2026-11-28"})
    assert "shape" in (wrong.error or "")


def test_descriptions_come_from_the_docstring() -> None:
    router = ToolRouter()

    @tool(router=router)
    def google(first: int, second: int, schema: Annotated[int, Field(description="Its own.")] = 1) -> None:
        """Do it.

        In two paragraphs.

        Args:
            first: what comes
                first: of all.
            second (int): what follows.
            schema: not this.

        Returns:
            nothing: at all.
        """

    @tool(router=router)
    def sphinx(first: int, model_config: str) -> None:
        """Do it.

        :param first: what comes
            first.
        :param str model_config: a name that pydantic has.
        :returns: nothing.
        """

    one, two = router.definitions
    properties: Any = one["parameters"]
    assert one["description"] == "Do it.\n\nIn two paragraphs."
    told = {name: each["description"] for name, each in properties["properties"].items()}
    assert told == {"first": "what comes first: of all.", "second": "what follows.", "schema": "Its own."}
    properties = two["parameters"]
    told = {name: each["description"] for name, each in properties["properties"].items()}
    assert told == {"first": "what comes first.", "model_config": "a name that pydantic has."}
    assert _called(router, "sphinx", {"first": 1, "model_config": "x"}).success


def _generator(a: int) -> Any:
    yield a


def _starred(*names: str) -> None: ...


def _bare(name: str) -> None: ...


del _bare.__annotations__["name"]


def _untyped(socket: threading.Thread) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_generator, "is a plain generator"),
        (_starred, "is not a parameter that a model can give"),
        (_bare, "name has no annotation"),
        (_untyped, "have no JSON Schema"),
        (len, "a tool is a function"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_where_it_is_declared(function: Any, told: str) -> None:
    with pytest.raises(InvalidTool, match=told):
        tool(function)


def test_names_and_settings_that_cannot_be_used_are_refused() -> None:
    async def ok() -> None: ...

    for options in ({"name": "a b"}, {"name": ""}, {"timeout_s": 0}, {"runs": "moon"}, {"mode": ""}):
        with pytest.raises(InvalidTool):
            tool(**options)(ok)
    with pytest.raises(InvalidTool, match="decision"):
        tool(decision={"type": "nonsense"})(ok)


def test_a_tool_with_steps_is_none_that_only_reads() -> None:
    with pytest.raises(InvalidTool, match="another mode than read"):

        @tool(mode="read", steps=True)
        async def look(ctx: Any) -> None: ...


def test_two_tools_of_one_name_are_an_error_with_both_places() -> None:
    router = ToolRouter()

    def first() -> None: ...

    def second() -> None: ...

    router.add(first)
    with pytest.raises(InvalidTool) as raised:
        tool(router=router, name="first")(second)
    for each in (first, second):
        assert f"{each.__code__.co_filename}:{each.__code__.co_firstlineno}" in str(raised.value)
    assert router.tools["first"].place.endswith(f":{first.__code__.co_firstlineno}")


# -- tools that misbehave ----------------------------------------------------------------------------------------------


def test_what_a_tool_raises_reaches_the_model_as_text() -> None:
    router = ToolRouter()

    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError

    @tool(router=router)
    async def broken() -> None:
        raise ValueError("no such city")

    @tool(router=router)
    async def odd() -> None:
        raise Odd

    @tool(router=router)
    async def exits() -> None:
        sys.exit(3)

    @tool(router=router)
    def exits_in_a_thread() -> None:
        sys.exit(3)

    @tool(router=router)
    async def cancels() -> None:
        raise asyncio.CancelledError

    @tool(router=router)
    async def deep() -> Any:
        return await deep()

    assert _called(router, "broken").message == "Error: ValueError: no such city"
    assert _called(router, "odd").error == "Odd"
    assert _called(router, "exits").error == "SystemExit: 3"
    assert _called(router, "exits_in_a_thread").error == "SystemExit: 3"
    assert _called(router, "cancels").error == "CancelledError"
    assert (_called(router, "deep").error or "").startswith("RecursionError")


def test_a_tool_that_hangs_is_told_and_holds_up_nothing() -> None:
    router, release = ToolRouter(), threading.Event()

    @tool(router=router, timeout_s=0.05)
    async def hangs() -> None:
        await asyncio.Event().wait()

    @tool(router=router, timeout_s=0.05)
    def blocks() -> None:
        release.wait()

    for name in ("hangs", "blocks"):
        assert _called(router, name).error == f"tool '{name}' took longer than its limit of 0.05 s"
    release.set()


async def test_a_cancellation_ends_the_call() -> None:
    router, begun = ToolRouter(), asyncio.Event()

    @tool(router=router)
    async def hangs() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(router.dispatch(ToolCall("c", "hangs")))
        await begun.wait()
        task.cancel()
    assert task.cancelled()


class _Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        object(),
        b"\xff",
        "\ud800",
        threading.Lock(),
        (each for each in [1]),
    ],
    ids=["inf", "object", "bytes", "surrogate", "lock", "generator"],
)
def test_a_result_that_json_cannot_hold_is_told(value: Any) -> None:
    router = ToolRouter()

    @tool(router=router)
    async def gives() -> Any:
        return value

    result = _called(router, "gives")
    assert not result.success
    assert "tool 'gives' returned" in (result.error or "")


def test_a_result_that_contains_itself_is_told() -> None:
    router, loop = ToolRouter(), list[Any]()
    loop.append(loop)

    @tool(router=router)
    async def gives() -> Any:
        return loop

    assert "JSON cannot hold" in (_called(router, "gives").error or "")


def test_models_dates_and_sets_are_results() -> None:
    router = ToolRouter()

    @tool(router=router)
    async def gives() -> Any:
        return [Circle(kind="circle", radius=1), date(2026, 1, 2), {"a"}, (1, 2)]

    assert _called(router, "gives").data["value"] == [{"kind": "circle", "radius": 1.0}, "2026-01-02", ["a"], [1, 2]]


def test_a_large_result_is_cut_for_the_model() -> None:
    router = ToolRouter()

    @tool(router=router)
    async def floods() -> str:
        return "x" * 100_000

    result = _called(router, "floods")
    assert result.data["value"] == "x" * 100_000
    assert len(result.message) < 5_000
    assert "100000 characters" in result.message


def test_a_flood_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_module, "MAX_RESULT_BYTES", 1000)
    router, yielded = ToolRouter(), []

    @tool(router=router)
    async def floods() -> AsyncGenerator[str, None]:
        while True:
            yielded.append(1)
            yield "x" * 100

    @tool(router=router)
    async def bursts() -> list[str]:
        return ["x"] * 1000

    assert "more than 1000 bytes" in (_called(router, "floods").error or "")
    assert len(yielded) <= 11
    assert "more than the 1000" in (_called(router, "bursts").error or "")


def test_a_plain_function_runs_in_a_thread() -> None:
    router = ToolRouter()

    @tool(router=router)
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert _called(router, "where").data["value"] is False


def test_a_policy_of_retries_is_kept() -> None:
    router, tries = ToolRouter(), list[str]()

    @tool(router=router, retry=Retry(attempts=3, delay_s=0, on=(ConnectionError,)))
    async def flaky(kind: str) -> int:
        tries.append(kind)
        if len(tries) < 3:
            raise ConnectionError if kind == "net" else ValueError
        return len(tries)

    assert _called(router, "flaky", {"kind": "net"}).data["value"] == 3
    tries.clear()
    assert _called(router, "flaky", {"kind": "other"}).error == "ValueError"
    assert len(tries) == 1


def test_a_tool_that_needs_a_turn_is_refused_without_one() -> None:
    router = ToolRouter()

    @tool(router=router)
    async def note(ctx: Any, text: str) -> None: ...

    assert "ctx" not in str(router.definitions[0]["parameters"])
    assert _called(router, "note", {"text": "x"}).data == {"refused": "context"}


# -- several calls -----------------------------------------------------------------------------------------------------


async def test_results_are_in_the_order_of_the_calls_and_reads_overlap() -> None:
    router, both = ToolRouter(), asyncio.Barrier(2)
    ended = []

    @tool(router=router, mode="read")
    async def look(name: str) -> str:
        await both.wait()
        await asyncio.sleep(0.01 if name == "a" else 0)
        ended.append(name)
        return name

    calls = [ToolCall(name, "look", {"name": name}) for name in ("a", "b")]
    results = await router.dispatch_all(calls)
    assert [result.message for result in results] == ["a", "b"]
    assert ended == ["b", "a"]


async def test_writes_run_one_after_the_other_in_their_place() -> None:
    router, running, log = ToolRouter(), list[str](), list[tuple[str, int]]()

    async def act(name: str) -> None:
        running.append(name)
        log.append((name, len(running)))
        await asyncio.sleep(0)
        running.remove(name)

    tool(router=router, name="look", mode="read")(act)
    tool(router=router, name="change", mode="write")(act)
    order = ["look", "look", "change", "change", "look"]
    calls = [ToolCall(f"c{number}", kind, {"name": f"{kind}{number}"}) for number, kind in enumerate(order)]
    results = await router.dispatch_all(calls)
    assert all(result.success for result in results)
    assert log == [("look0", 1), ("look1", 2), ("change2", 1), ("change3", 1), ("look4", 1)]


async def test_many_reads_are_bounded() -> None:
    router, running, most = ToolRouter(), list[int](), list[int]()

    @tool(router=router, mode="read")
    async def look(number: int) -> None:
        running.append(number)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(number)

    results = await router.dispatch_all([ToolCall(f"c{each}", "look", {"number": each}) for each in range(200)])
    assert all(result.success for result in results)
    assert max(most) == 16


async def test_what_fails_among_several_calls_leaves_the_others() -> None:
    router = ToolRouter()

    @tool(router=router, mode="read")
    async def look(name: str) -> str:
        if name == "b":
            raise ValueError(name)
        return name

    calls = [ToolCall(name, "look", {"name": name}) for name in ("a", "b", "c")]
    calls.append(ToolCall("d", "nothing"))
    assert [result.success for result in await router.dispatch_all(calls)] == [True, False, True, False]


def test_a_blocked_thread_does_not_hold_up_the_event_loop_at_its_end() -> None:
    router, release = ToolRouter(), threading.Event()

    @tool(router=router, timeout_s=0.01)
    def blocks() -> None:
        release.wait(60)

    began = time.monotonic()
    _called(router, "blocks")
    try:
        assert time.monotonic() - began < 30, "asyncio.run waits for the threads of asyncio.to_thread"
    finally:
        release.set()
