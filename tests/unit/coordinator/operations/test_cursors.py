"""Cursors: any place of a list comes back, and no other list takes it."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coordinator.operations.cursors import cursor_after, place_after
from coordinator.operations.errors import InvalidCursor

owners = st.lists(st.none() | st.text(max_size=10), max_size=3)


@given(name=st.text(max_size=5), of=owners, number=st.integers(0, 2**53), text=st.text(max_size=20))
def test_a_place_comes_back(name: str, of: list[str | None], number: int, text: str) -> None:
    by_number, by_text = cursor_after(name, of, number), cursor_after(name, of, text)
    assert (place_after(by_number, name, of, 0), place_after(None, name, of, 7)) == (number, 7)
    assert place_after(by_text, name, of, "") == text
    with pytest.raises(InvalidCursor):
        place_after(by_number, name, [*of, "more"], 0)
    with pytest.raises(InvalidCursor):
        place_after(by_number, name, of, "")
    with pytest.raises(InvalidCursor):
        place_after(by_text, name, of, 0)


@given(text=st.text(max_size=60))
def test_any_text_is_refused(text: str) -> None:
    assume(text != cursor_after("events", ["notes/a"], 3))
    with pytest.raises(InvalidCursor):
        place_after(text, "events", ["notes/a"], 0)
