"""Tails of recorded events: pages, types, further events, ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from chronicle.errors import Unavailable
from coordinator.streams.event_tail import EventTails, TailedEvent, parse_seq
from coordinator.streams.position import InvalidPosition
from podium.address import Address
from podium.errors import UnknownAgent
from tests.waiting import until

AGENT = Address("type", "key")
DEADLINE_S = 30


class Recorded(NamedTuple):
    seq: int
    type: str

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


class Page(NamedTuple):
    items: list[Recorded]
    next_cursor: str | None


class History:
    """The events of one agent; each has its seq and a type."""

    def __init__(self, *types: str) -> None:
        self.types = list(types)
        self.looks = 0
        self.gone: Exception | None = None

    async def version(self, address: Address) -> int:
        self.looks += 1
        if self.gone is not None:
            raise self.gone
        return len(self.types)

    async def events(self, address: Address, *, after_seq: int, types: Sequence[str], limit: int) -> Page:
        await asyncio.sleep(0)
        found = [
            Recorded(seq, kind)
            for seq, kind in enumerate(self.types, 1)
            if seq > after_seq and (not types or kind in types)
        ]
        return Page(found[:limit], "more" if len(found) > limit else None)


async def seqs(reader: Any, until_seq: int) -> list[int]:
    found: list[TailedEvent] = []
    while not found or found[-1].seq < until_seq:
        batch = await reader.next()
        assert batch, "the tail ended"
        found += batch
    for seq, event in found:
        assert event.startswith(f'id: {seq}\ndata: {{"seq":{seq},'.encode())
    return [each.seq for each in found]


async def test_what_is_recorded_comes_and_then_what_follows() -> None:
    history = History(*["note"] * 250)
    async with EventTails(history) as tails:
        with tails.open(AGENT) as reader, tails.open(AGENT, 240) as other:
            assert await seqs(reader, 250) == list(range(1, 251))
            assert await seqs(other, 250) == list(range(241, 251))
            history.types += ["note", "note"]
            assert await seqs(reader, 252) == [251, 252]
            assert await seqs(other, 252) == [251, 252]
            assert not reader.is_complete


async def test_events_of_other_types_are_passed_over() -> None:
    history = History(*["note"] * 300, "turn.committed", *["note"] * 300)
    async with EventTails(history) as tails:
        with tails.open(AGENT, types=["turn.committed"]) as reader:
            assert await seqs(reader, 301) == [301]
            waiting = asyncio.create_task(reader.next())
            history.types += ["note"]
            await asyncio.sleep(0)
            assert not waiting.done()
            history.types += ["turn.committed"]
            assert [each.seq for each in await waiting] == [603]


async def test_an_agent_is_looked_at_once_for_all_readers_and_not_without_any() -> None:
    history = History("note")
    async with EventTails(history) as tails:
        with ExitStack() as stack:
            for _ in range(20):
                assert await seqs(stack.enter_context(tails.open(AGENT)), 1) == [1]
            assert history.looks < 20
        await asyncio.sleep(0)
        looks = history.looks
        with tails.open(AGENT) as reader:
            await seqs(reader, 1)
        assert history.looks > looks


@pytest.mark.parametrize("error", [UnknownAgent("it was deleted"), ZeroDivisionError("a bug")])
async def test_an_agent_that_cannot_be_read_ends_its_tails(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    history = History("note")
    async with EventTails(history) as tails:
        with tails.open(AGENT) as reader:
            await seqs(reader, 1)
            history.gone = error
            assert await reader.next() == []
    assert ("Traceback" in caplog.text) == isinstance(error, ZeroDivisionError)


async def test_a_tail_that_is_opened_after_a_failure_works_though_readers_of_before_are_still_there() -> None:
    history = History("note")
    async with EventTails(history) as tails:
        with ExitStack() as slow:
            reader = slow.enter_context(tails.open(AGENT))
            await seqs(reader, 1)
            history.gone = Unavailable("the disk is busy")
            assert await reader.next() == []
            history.gone = None
            with tails.open(AGENT) as later:
                async with asyncio.timeout(DEADLINE_S):
                    assert await seqs(later, 1) == [1]
                slow.close()
                history.types += ["note"]
                async with asyncio.timeout(DEADLINE_S):
                    assert await seqs(later, 2) == [2]
            with tails.open(AGENT, 1) as last:
                async with asyncio.timeout(DEADLINE_S):
                    assert await seqs(last, 2) == [2]


async def test_an_agent_made_anew_ends_the_tails_of_its_predecessor() -> None:
    history = History("note", "note", "note")
    async with EventTails(history) as tails:
        with tails.open(AGENT) as reader:
            await seqs(reader, 3)
            history.types = ["note"]
            assert await reader.next() == []


async def test_closed_tails_end() -> None:
    history = History("note")
    async with EventTails(history) as tails:
        with tails.open(AGENT, 1) as reader:
            waiting = asyncio.create_task(reader.next())
            await until(lambda: history.looks)
            tails.close()
            assert await waiting == []
            with tails.open(AGENT) as late:
                assert await late.next() == []


async def test_a_position_that_is_none_is_refused() -> None:
    async with EventTails(History("note", "note")) as tails:
        await tails.check(AGENT, 2)
        with pytest.raises(InvalidPosition, match="has no event 3"):
            await tails.check(AGENT, 3)
    for text in ("", "x", "-1", "1.0", "٣", "9" * 16, "msg_1/end"):
        with pytest.raises(InvalidPosition):
            parse_seq(text)
    assert parse_seq("17") == 17
