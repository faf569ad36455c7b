"""The order in which racing writers of a branch are answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from coordinator.sessions import append_queue
from coordinator.sessions.append_queue import AppendQueue
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Coroutine

pytestmark = pytest.mark.anyio
FOR_EVER_S = 3600.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time decide nothing, but where a test says so."""
    monkeypatch.setattr(append_queue, "HAND_OVER_S", FOR_EVER_S)
    monkeypatch.setattr(append_queue, "LONGEST_S", FOR_EVER_S)


class Told:
    """Requests of a line, and which of them were answered, in that order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, request: Coroutine[None, None, None]) -> None:
        """Begin a request, and let it run until it waits."""

        async def answered() -> None:
            await request
            self.names.append(name)

        self.tasks[name] = asyncio.create_task(answered())
        for _ in range(5):
            await asyncio.sleep(0)


async def test_one_refused_writer_is_told_at_a_time_in_the_order_of_their_requests() -> None:
    line, told = AppendQueue(), Told()
    for name in "abc":
        await told.begin(name, line.refused())
    assert told.names == ["a"]
    line.appended()
    await until(lambda: told.names == ["a", "b"])
    line.appended()
    await until(lambda: told.names == ["a", "b", "c"])


async def test_a_writer_hears_of_its_success_when_the_one_that_was_told_has_followed() -> None:
    line, told = AppendQueue(), Told()
    line.appended()
    await told.begin("alone", line.succeeded())
    assert told.names == ["alone"]

    await told.begin("refused", line.refused())
    await told.begin("first", line.succeeded())
    assert told.names == ["alone", "refused"]
    line.appended()
    await until(lambda: told.names == ["alone", "refused", "first"])


async def test_those_that_wait_to_append_are_refused_before_the_winner_is_answered() -> None:
    line, told = AppendQueue(), Told()

    async def outrun() -> None:
        async with line.appending:
            pass
        await line.refused()

    async with line.appending:
        await told.begin("loser", outrun())
        line.appended()
    await told.begin("winner", line.succeeded())
    assert told.names == ["loser"]
    line.appended()
    await until(lambda: told.names == ["loser", "winner"])


async def test_a_writer_that_was_told_and_does_not_append_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_queue, "HAND_OVER_S", 0.01)
    line, told = AppendQueue(), Told()
    for name in "abc":
        await told.begin(name, line.refused())
    await told.begin("winner", line.succeeded())
    await until(lambda: sorted(told.names) == ["a", "b", "c", "winner"])
    assert [name for name in told.names if name != "winner"] == ["a", "b", "c"]


async def test_an_append_that_is_being_written_is_awaited_though_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_queue, "HAND_OVER_S", 0.001)
    line, told = AppendQueue(), Told()
    await told.begin("a", line.refused())
    async with line.appending:
        await told.begin("b", line.refused())
        meanwhile = Told()
        other = AppendQueue()
        for name in "abcde":
            await meanwhile.begin(name, other.refused())
        await until(lambda: len(meanwhile.names) == 5)
        assert told.names == ["a"]
        monkeypatch.setattr(append_queue, "LONGEST_S", 0.01)
        await told.begin("c", line.refused())
        await until(lambda: told.names == ["a", "c"])
        line.appended()
    await until(lambda: told.names == ["a", "c", "b"])


async def test_who_has_gone_is_passed_over() -> None:
    line, told = AppendQueue(), Told()
    await told.begin("a", line.refused())
    await told.begin("gone", line.refused())
    await told.begin("b", line.refused())
    await told.begin("winner", line.succeeded())
    gone = [told.tasks["gone"], told.tasks["winner"]]
    for task in gone:
        _ = task.cancel()
    _ = await asyncio.wait(gone)
    line.appended()
    await until(lambda: told.names == ["a", "b"])
