"""Addresses: what is accepted, what is refused and how it is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.address import MAX_KEY_LENGTH, Address
from podium.errors import InvalidAddress


@pytest.mark.parametrize("key", ["a", "alice", "Alice Smith", "ключ", "a.b", "x" * MAX_KEY_LENGTH, "user@example.org"])
def test_ordinary_keys_are_accepted(key: str) -> None:
    address = Address("hello", key)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "empty"),
        ("a/b", "'/'"),
        ("..", "'..'"),
        ("a..b", "'..'"),
        (".", "'.'"),
        ("x" * (MAX_KEY_LENGTH + 1), "129 characters; 128"),
        ("a\nb", "control characters"),
        (" a", "white space"),
        ("a\x00", "control characters"),
    ],
)
def test_unusable_keys_are_refused_with_the_reason(key: str, says: str) -> None:
    with pytest.raises(InvalidAddress, match=says.replace(".", r"\.")):
        Address("hello", key)


@pytest.mark.parametrize("agent_type", ["", "a/b", "9lives", "a b", "x" * 65, "a..b", "é"])
def test_unusable_types_are_refused(agent_type: str) -> None:
    with pytest.raises(InvalidAddress, match="agent type"):
        Address(agent_type, "a")


def test_an_address_without_a_slash_is_refused() -> None:
    with pytest.raises(InvalidAddress, match="type/key"):
        Address.parse("hello")


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_workspace_ids_are_safe_file_names_and_differ(left: str, right: str) -> None:
    try:
        first, second = Address("t", left), Address("t", right)
    except InvalidAddress:
        return
    assert all(part.isascii() and (part.isalnum() or part in "_-") for part in first.workspace_id)
    assert not first.workspace_id.startswith(".")
    assert (first.workspace_id == second.workspace_id) == (left == right)
