"""What is kept of a branch, of bundles and of responses, within a limit."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from coordinator.home import Home
from coordinator.responses.context import ContextBuilder
from coordinator.responses.reading import SessionReader
from tests.unit.coordinator.responses.loops import Loop

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coordinator.responses.context import BranchHead
    from coordinator.responses.transcript import BranchEvent


@dataclass(frozen=True)
class CountingReader(SessionReader):
    """Counts the events and the bundles that are read."""

    read: Counter[str] = field(default_factory=Counter)

    def events(
        self, tenant: str, session_id: str, branch_id: str, after: int
    ) -> tuple[BranchHead, Sequence[BranchEvent]]:
        head, events = SessionReader.events(self, tenant, session_id, branch_id, after)
        self.read["events"] += len(events)
        return head, events

    def bundle(self, content: str) -> str:
        self.read["bundles"] += 1
        return SessionReader.bundle(self, content)


@pytest.mark.parametrize(("most_characters", "times_read"), [(1_000_000, 1), (50, 3), (1, 3)])
def test_what_is_larger_than_the_limit_is_read_anew_and_the_context_is_the_same(
    tmp_path: Path, most_characters: int, times_read: int
) -> None:
    home = Home(tmp_path / "home").create()
    with closing(home.journal()) as store, closing(home.blobs()) as blobs:
        loop = Loop(store, blobs, IdSource(), SystemClock())
        loop.open("rules " * 20)
        loop.turn("one?", "1")
        loop.turn("two?", "2")
        reader = CountingReader(store, blobs, SystemClock())
        builder = ContextBuilder(most_characters)
        for _ in range(3):
            context = builder.build(reader, loop.tenant, loop.session_id)
            (rules,) = context.prefix
            assert "rules " * 20 in rules.text
            assert [message.text for message in context.transcript] == ["one?", "1", "two?", "2"]
        assert reader.read == {"events": 4 * times_read, "bundles": times_read}


def test_the_branch_that_was_used_longest_ago_is_read_anew(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    with closing(home.journal()) as store, closing(home.blobs()) as blobs:
        loops = [Loop(store, blobs, IdSource(), SystemClock()) for _ in range(3)]
        for loop in loops:
            loop.open()
            loop.turn("?", "!")
        reader = CountingReader(store, blobs, SystemClock())
        builder = ContextBuilder(500)  # of two branches with two events of some 100 characters each

        def reads(loop: Loop) -> int:
            before = reader.read["events"]
            assert len(builder.build(reader, loop.tenant, loop.session_id).transcript) == 2
            return reader.read["events"] - before

        assert [reads(loop) for loop in loops[:2]] == [2, 2]
        assert reads(loops[0]) == 0
        assert reads(loops[2]) == 2  # evicts the second
        assert reads(loops[0]) == 0
        assert reads(loops[1]) == 2
