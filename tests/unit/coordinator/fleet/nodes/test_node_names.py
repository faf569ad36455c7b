"""The names of nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.fleet.nodes.node_names import Member, name_nodes


def member(ray_id: str, name: str = "10.0.0.1", hostname: str = "vm") -> Member:
    return Member(ray_id, name, "10.0.0.1", hostname)


def test_a_node_has_its_own_name_or_that_of_its_machine() -> None:
    assert name_nodes([member("1", "gpu-a"), member("2"), member("3")], {}) == {"1": "gpu-a", "2": "vm", "3": "vm-2"}


def test_a_name_is_one_of_a_directory() -> None:
    names = name_nodes([member("1", "../etc"), member("2", "a b/c"), member("3", "..."), member("4", "n" * 99)], {})
    assert names == {"1": "etc", "2": "a-b-c", "3": "node", "4": "n" * 63}


def test_a_node_keeps_its_name_and_leaves_it_to_the_next_one_when_it_is_gone() -> None:
    named = name_nodes([member("1"), member("2")], {})
    assert named == {"1": "vm", "2": "vm-2"}
    assert name_nodes([member("0"), member("2")], named) == {"2": "vm-2", "0": "vm"}


@given(st.lists(st.tuples(st.uuids().map(str), st.sampled_from(["a", "a-2", "", "10.0.0.1"])), max_size=9, unique=True))
def test_names_are_unique_and_stay(nodes: list[tuple[str, str]]) -> None:
    members = [member(ray_id, name) for ray_id, name in nodes]
    first = name_nodes(members[: len(members) // 2], {})
    every = name_nodes(members, first)
    assert first.items() <= every.items()
    assert len(set(every.values())) == len({each.ray_id for each in members})
