"""The memory of a shared host: its limit, and whose turns it grew with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from coordinator.host.memory_watch import MemoryWatch
from podium.address import Address

if TYPE_CHECKING:
    from coordinator.host.hosted_agent import HostedAgent

MIB = 1 << 20


class Memory:
    """That of a process, in MiB, and its agents."""

    def __init__(self, limit: int, used: int = 50) -> None:
        self.used = used
        self.watch = MemoryWatch(limit * MIB, lambda: self.used * MIB)
        self.turns = {"alice": 0, "bob": 0, "carol": 0}

    def check(self, *, running: str | None = None) -> bool:
        agents = [
            SimpleNamespace(
                address=Address("hello", key),
                activation=SimpleNamespace(turn=turn, deadline_s=9.0 if key == running else None),
            )
            for key, turn in self.turns.items()
        ]
        return self.watch.check([cast("HostedAgent", agent) for agent in agents])


def test_a_process_is_full_above_its_limit() -> None:
    memory = Memory(limit=200)
    assert not memory.check()
    memory.used = 200
    assert not memory.check()
    memory.used = 201
    assert memory.check()


def test_the_limit_leaves_room_for_work() -> None:
    memory = Memory(limit=10, used=50)
    assert not memory.check()
    memory.used = 50 + 65
    assert memory.check()


def test_the_agent_whose_turns_it_grew_with_most_is_named_first() -> None:
    memory = Memory(limit=200)
    memory.check()
    for _ in range(4):
        memory.used += 30
        memory.turns["alice"] += 1  # a turn that was shorter than the time between two checks
        memory.check(running="bob" if memory.used < 120 else None)
    said = memory.watch.describe()
    assert said == (
        "170 MiB of memory, limit 200 MiB; it grew most with the turns of hello/alice (90 MiB), hello/bob (30 MiB)"
    )


def test_an_agent_that_waits_is_not_named() -> None:
    memory = Memory(limit=200)
    memory.check()
    memory.used += 30
    memory.check(running="carol")
    assert "hello/carol (30 MiB)" in memory.watch.describe()
    assert "alice" not in memory.watch.describe()


def test_all_turns_between_two_checks_count_also_before_the_first_growth() -> None:
    memory = Memory(limit=200)
    memory.check()
    memory.turns["alice"] += 3
    memory.used += 90
    memory.check(running="bob")
    assert "hello/alice (45 MiB), hello/bob (45 MiB)" in memory.watch.describe()
