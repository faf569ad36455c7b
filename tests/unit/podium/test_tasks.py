"""Tasks outside of task groups."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from podium.tasks import BackgroundTasks, beside, joined_beside, with_pauses


async def _fail() -> None:
    raise ValueError("a bug")


async def test_tasks_are_kept_until_they_end() -> None:
    tasks, may_end = BackgroundTasks(), asyncio.Event()
    waiting = tasks.start(may_end.wait(), "waits")
    assert (len(tasks), waiting.get_name()) == (1, "waits")
    may_end.set()
    assert await waiting
    assert len(tasks) == 0


async def test_errors_are_the_callers_unless_they_are_to_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks()
    with pytest.raises(ValueError, match="a bug"):
        await tasks.start(_fail(), "fails")
    assert "failed" not in caplog.text
    await tasks.start_logged(_fail(), "fails")
    assert "coordinator_task_failed" in caplog.text


async def test_a_join_cancels_nothing_and_closing_cancels() -> None:
    tasks, may_end = BackgroundTasks(), asyncio.Event()
    await tasks.join()
    waiting = tasks.start(may_end.wait(), "waits")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await tasks.join()
    assert not waiting.done()
    await tasks.close()
    assert waiting.cancelled()


async def test_what_runs_beside_a_block_ends_with_it() -> None:
    never, cleaned = asyncio.Event(), False

    async def wait() -> None:
        nonlocal cleaned
        try:
            await never.wait()
        finally:
            await asyncio.sleep(0)
            cleaned = True

    with beside(wait(), "waits") as waiting:
        assert isinstance(waiting, asyncio.Task)
        assert waiting.get_name() == "waits"
    assert not waiting.done()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    cleaned = False
    async with joined_beside(wait()) as waiting:
        await asyncio.sleep(0)
    assert waiting.cancelled()
    assert cleaned
    async with joined_beside(_fail()) as failing:
        await asyncio.wait((failing,))


async def test_pauses_between_items() -> None:
    more, closed = asyncio.Event(), False

    async def items() -> AsyncGenerator[int]:
        nonlocal closed
        try:
            yield 1
            await more.wait()
            yield 2
            more.clear()
            await more.wait()
        finally:
            closed = True

    async with aclosing(with_pauses(items(), 0.001)) as found:
        assert [await anext(found), await anext(found), await anext(found)] == [1, None, None]
        more.set()
        while (item := await anext(found)) is None:
            pass
        assert item == 2
    assert closed
    more.set()

    async def two() -> AsyncGenerator[int]:
        yield 1
        yield 2

    assert [item async for item in with_pauses(two(), 5)] == [1, 2]
