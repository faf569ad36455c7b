"""Promises of every `podium.runs.RunStore`, as tests. Subclass it for an implementation::

    class TestMyStore(RunStoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            @asynccontextmanager
            async def opened():
                yield MyStore(tmp_path)

            return opened

Needs pytest, and no plugin: each test has an event loop of its own.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import pytest

from podium.errors import DecisionInvalid, RunNotFound, RunNotPaused, ToolNotRegistered
from podium.models import ImageBlock, LLMMessage, ProviderBlock, TextBlock, ToolCall
from podium.runs import AgentRun, PendingCall, decided

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from chronicle.canonical import Json, JsonObject
    from podium.runs import RunStore

    Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[RunStore]]

__all__ = ["RunStoreContract"]

T = TypeVar("T")

_BEGAN_MS: Final = 1_700_000_000_000
_MAX_AWAITS: Final = 1_000
"""Of a save: it is cancelled at each of them."""
_UNION: Final[JsonObject] = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "approve"}, "limit": {"type": "integer", "minimum": 1}},
            "required": ["kind", "limit"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "deny"}, "reason": {"type": "string"}},
            "required": ["kind", "reason"],
            "additionalProperties": False,
        },
    ],
    "discriminator": {"propertyName": "kind"},
}
"""Of decisions: a union whose arms differ in ``kind``."""
_EXCLUSIVE: Final[JsonObject] = {"oneOf": [{"type": "integer", "maximum": 9}, {"type": "integer", "minimum": 5}]}
"""A union whose arms overlap from 5 to 9."""
_CALLS: Final = (
    ToolCall("call_1", "look", {"at": "prices"}),
    ToolCall("call_2", "buy", {"what": "tea", "limits": [{"per_day": 5}]}),
    ToolCall("call_3", "tell", {}),
)


def _run(run_id: str = "msg_1", **changes: Any) -> AgentRun:
    """Return a run whose second call of three waits for a decision; the first has a result."""
    messages = (
        LLMMessage("user", "buy tea"),
        LLMMessage("assistant", (TextBlock("I look first."),), tool_calls=_CALLS, response_id="resp_1"),
        LLMMessage("tool", "5 a box", tool_call_id="call_1"),
    )
    begun = AgentRun(run_id, "code.fast", _BEGAN_MS, _BEGAN_MS, tools=({"name": "buy", "parameters": {}},))
    return replace(begun.paused(_CALLS[1], messages, _BEGAN_MS + 5), **changes)


class RunStoreContract(ABC):
    """Subclass it, and give it a fixture ``open_store``."""

    @pytest.fixture
    @abstractmethod
    def open_store(self) -> Opener:
        """Return what opens the store under test; each call opens the same one again, as another process would."""

    def test_a_run_comes_back_as_it_was_saved(self, open_store: Opener) -> None:
        # S4.6, S4.8, S4.26
        everything = _run(
            system_prompt="Be brief.\n\u2028\x00 \N{HOT BEVERAGE}",
            tools=({"name": "buy", "parameters": {"type": "object", "default": None}},) * 2,
            messages=(
                LLMMessage("system", "", cache="long"),
                LLMMessage("user", (ImageBlock("image/png", b"\x89\x00\xff"), ImageBlock("", url="https://x/y"))),
                LLMMessage("assistant", (ProviderBlock("anthropic", {"signature": "x", "n": [1.5, None, True]}),)),
                LLMMessage("assistant", tool_calls=(ToolCall("c", "buy", {}, invalid_arguments="{", after_blocks=0),)),
            ),
            pending=PendingCall("c", "buy", {"deep": [[{"": 2**53 - 1}], -0.25, False, ""]}),
        )
        for run in (_run(), everything, _run(tools=(), messages=(), pending=None)):
            _do(_saved(open_store, run))
            assert _do(_loaded(open_store, run.id)) == run

    def test_a_run_that_is_not_there_loads_as_none(self, open_store: Opener) -> None:
        # S4.6, S4.9
        async def case() -> None:
            async with open_store() as store:
                assert await store.load("msg_1") is None
                await store.delete("msg_1")
                with pytest.raises(RunNotFound):
                    await decided(store, "msg_1", True, {"buy": True})

        _do(case())

    def test_a_deleted_run_is_gone_and_others_stay(self, open_store: Opener) -> None:
        # S4.6
        _do(_saved(open_store, _run("a")))
        _do(_saved(open_store, _run("b")))

        async def delete() -> None:
            async with open_store() as store:
                await store.delete("a")
                assert await store.load("a") is None

        _do(delete())
        assert _do(_loaded(open_store, "a")) is None
        assert _do(_loaded(open_store, "b")) == _run("b")
        _do(_saved(open_store, _run("a", model="other")))
        assert _do(_loaded(open_store, "a")) == _run("a", model="other")

    def test_similar_ids_are_those_of_several_runs(self, open_store: Opener) -> None:
        # S4.6
        ids = ["run", "Run", "run ", "run/1", "run/../run", "%72un", "run*", "r\u00fcn", "ru\u0308n", "~1", "r" * 256]
        for number, run_id in enumerate(ids):
            _do(_saved(open_store, _run(run_id, updated_ms=number)))
        found = [_do(_loaded(open_store, run_id)) for run_id in ids]
        assert found == [_run(run_id, updated_ms=number) for number, run_id in enumerate(ids)]

    def test_runs_cross_the_border_as_deep_copies(self, open_store: Opener) -> None:
        # S4.8
        async def case() -> None:
            async with open_store() as store:
                arguments: Any = {"limits": [{"per_day": 5}]}
                tools: list[JsonObject] = [{"name": "buy", "parameters": {}}]
                block: JsonObject = {"thinking": ["long"]}
                messages = [LLMMessage("assistant", (ProviderBlock("anthropic", block),))]
                run = _run(pending=PendingCall("c", "buy", arguments), tools=tools, messages=messages)
                as_it_was = AgentRun.from_json(run.to_json())
                await store.save(run)
                arguments["limits"][0]["per_day"] = 500
                tools.clear()
                messages.clear()
                block["thinking"] = "changed"
                found = await store.load(run.id)
                assert found == as_it_was
                assert found.pending is not None
                cast("Any", found.pending.input)["limits"].append("added")
                cast("Any", found.tools[0])["name"] = "sell"
                assert await store.load(run.id) == as_it_was

        _do(case())

    def test_a_second_pause_keeps_when_the_run_began(self, open_store: Opener) -> None:
        # S4.1, S4.8
        _do(_saved(open_store, _run()))
        first = _do(_loaded(open_store, "msg_1"))
        assert first is not None
        more = (*first.messages, LLMMessage("tool", "bought", tool_call_id="call_2"))
        second = first.paused(_CALLS[2], more, _BEGAN_MS + 9)
        _do(_saved(open_store, second))
        found = _do(_loaded(open_store, "msg_1"))
        assert found == second
        assert (found.created_ms, found.updated_ms) == (_BEGAN_MS, _BEGAN_MS + 9)
        assert found.pending == PendingCall("call_3", "tell", {})

    def test_a_run_may_become_smaller(self, open_store: Opener) -> None:
        # S4.6
        _do(_saved(open_store, _run(system_prompt="Be brief.")))
        smaller = _run(messages=(LLMMessage("user", "a summary"),), tools=(), pending=None)
        _do(_saved(open_store, smaller))
        assert _do(_loaded(open_store, "msg_1")) == smaller

    def test_siblings_of_a_batch_that_ended_are_not_run_again(self, open_store: Opener) -> None:
        # S4.1, S4.4
        _do(_saved(open_store, _run()))
        found = _do(_loaded(open_store, "msg_1"))
        assert found is not None
        assert list(found.open_calls) == [_CALLS[1], _CALLS[2]]
        assert [message.text for message in found.messages if message.role == "tool"] == ["5 a box"]

    def test_a_save_that_is_aborted_leaves_one_run_whole(self, open_store: Opener) -> None:
        # S4.6
        async def case() -> None:
            async with open_store() as store:
                for awaits in range(_MAX_AWAITS):
                    before, after = _run(model=f"{awaits} before"), _run(model=f"{awaits} after", messages=())
                    await store.save(before)
                    async with asyncio.TaskGroup() as tasks:
                        saving = tasks.create_task(store.save(after), name="a save")
                        for _ in range(awaits):
                            await asyncio.sleep(0)
                        ended = saving.done()
                        saving.cancel()
                    assert await store.load("msg_1") in ((after,) if ended else (before, after))
                    if ended:
                        break
                last = _run(model="last")
                await store.save(last)
                assert await store.load("msg_1") == last

        _do(case())

    def test_saves_at_once_keep_each_run_whole(self, open_store: Opener) -> None:
        # S4.6
        runs = [_run(f"msg_{number}", model=f"{number}") for number in range(20)]
        versions = [_run("same", model=f"{number}", system_prompt="x" * number) for number in range(20)]

        async def case() -> None:
            async with open_store() as store:
                async with asyncio.TaskGroup() as tasks:
                    for run in (*runs, *versions):
                        tasks.create_task(store.save(run), name=f"a save of {run.id}")
                assert [await store.load(run.id) for run in runs] == runs
                assert await store.load("same") in versions

        _do(case())

    @pytest.mark.parametrize(
        ("schema", "taken", "refused"),
        [
            pytest.param(
                _UNION,
                [{"kind": "approve", "limit": 1}, {"kind": "deny", "reason": ""}],
                [
                    ({"kind": "approve", "limit": 0}, "/limit"),
                    ({"kind": "deny", "limit": 1}, "reason"),
                    ({"kind": "approve", "limit": 1, "reason": ""}, "reason"),
                    ({"kind": "later"}, "oneOf"),
                    (True, "oneOf"),
                ],
                id="discriminated union",
            ),
            pytest.param(_EXCLUSIVE, [4, 10], [(5, "oneOf"), ("4", "oneOf")], id="exclusive arms"),
        ],
    )
    def test_a_decision_about_a_union_fits_one_arm(
        self, open_store: Opener, schema: Json, taken: list[Json], refused: list[tuple[Json, str]]
    ) -> None:
        # S4.5, S4.11
        _do(_saved(open_store, _run()))

        async def case() -> None:
            async with open_store() as store:
                for decision, place in refused:
                    with pytest.raises(DecisionInvalid, match=place) as raised:
                        await decided(store, "msg_1", decision, {"buy": schema})
                    assert raised.value.errors
                for decision in taken:
                    assert await decided(store, "msg_1", decision, {"buy": schema}, call_id="call_2") == _run()

        _do(case())
        assert _do(_loaded(open_store, "msg_1")) == _run(), "a decision alone changes nothing"

    def test_a_decision_that_nothing_waits_for_is_refused(self, open_store: Opener) -> None:
        # S4.9
        async def case() -> None:
            async with open_store() as store:
                await store.save(_run())
                with pytest.raises(ToolNotRegistered) as raised:
                    await decided(store, "msg_1", True, {"sell": True})
                assert (raised.value.run_id, raised.value.tool_name) == ("msg_1", "buy")
                with pytest.raises(RunNotPaused, match="call_2"):
                    await decided(store, "msg_1", True, {"buy": True}, call_id="call_1")
                await store.save(_run(pending=None))
                with pytest.raises(RunNotPaused):
                    await decided(store, "msg_1", True, {"buy": True})

        _do(case())


def _do(case: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(case)


async def _saved(open_store: Opener, run: AgentRun) -> None:
    async with open_store() as store:
        await store.save(run)


async def _loaded(open_store: Opener, run_id: str) -> AgentRun | None:
    async with open_store() as store:
        return await store.load(run_id)
