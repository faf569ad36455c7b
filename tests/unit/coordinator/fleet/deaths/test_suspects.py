"""The suspects of a death, which come back apart until the culprit is alone."""

from __future__ import annotations

from collections import Counter

import pytest

from coordinator.fleet.deaths.suspects import MAX_GROUPS, Suspects
from podium.address import Address


def agents(count: int) -> list[Address]:
    return [Address("hello", str(number)) for number in range(count)]


def host_of(suspects: Suspects, address: Address) -> object:
    return address if suspects.why_alone(address) is not None else suspects.group_of(address)


@pytest.mark.parametrize("count", [1, 2, MAX_GROUPS, MAX_GROUPS + 1, 100])
def test_they_are_split_into_few_groups_of_near_equal_size(count: int) -> None:
    suspects = Suspects()
    suspects.split(agents(count), "exit status 3")
    sizes = Counter(host_of(suspects, address) for address in agents(count))
    assert len(sizes) == min(MAX_GROUPS, count)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert None not in sizes


def test_the_likeliest_are_apart_from_each_other() -> None:
    suspects = Suspects()
    suspects.split(agents(50), None)
    assert len({host_of(suspects, address) for address in agents(MAX_GROUPS)}) == MAX_GROUPS


def test_one_that_is_alone_is_told_why_until_it_is_cleared() -> None:
    suspects, [alice] = Suspects(), agents(1)
    suspects.split([alice], "killed by SIGSEGV (signal 11)")
    why = "its shared process died (killed by SIGSEGV (signal 11)), and which agent ended it is not known"
    assert suspects.why_alone(alice) == why
    suspects.clear(alice)
    assert (suspects.why_alone(alice), suspects.group_of(alice)) == (None, None)


@pytest.mark.parametrize(("count", "number"), [(1, 0), (9, 8), (64, 0), (65, 64), (5000, 4321)])
def test_a_culprit_is_alone_after_few_deaths(count: int, number: int) -> None:
    """With every death of its host the others there come back elsewhere."""
    culprit = agents(count)[number]
    suspects, together, deaths = Suspects(), agents(count), 0
    while suspects.why_alone(culprit) is None:
        suspects.split(together, None)
        deaths += 1
        together = [address for address in together if suspects.group_of(address) == suspects.group_of(culprit)]
    assert deaths <= 5, "8 ** 5 > 5000"
