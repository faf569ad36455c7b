"""Headers of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from podium.caller import Caller
from podium.messages.headers import AskHeader, Headers, ReminderHeader

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject


def test_all_of_them_come_back() -> None:
    caller = Caller("key_1", frozenset({"write", "read"}), {"sub": "ann"}, ("a/b",))
    headers = Headers(
        AskHeader(("a/b", "c/d"), 5), ReminderHeader("daily", 7, 2), "00-1-2-01", caller, "msg_1", {"newer": [1]}
    )
    stored = headers.to_json()
    assert stored == {
        "ask": {"path": ["a/b", "c/d"], "deadline_ms": 5},
        "reminder": {"name": "daily", "due_ms": 7, "missed": 2},
        "trace": "00-1-2-01",
        "caller": {"key_id": "key_1", "scopes": ["read", "write"], "claims": {"sub": "ann"}, "agents": ["a/b"]},
        "failed": "msg_1",
        "newer": [1],
    }
    assert Headers.from_json(stored) == headers


def test_none_is_nothing() -> None:
    assert Headers().to_json() is None
    assert Headers.from_json(None) == Headers.from_json({}) == Headers()


@pytest.mark.parametrize(
    "stored",
    [
        {"ask": {"path": ["a/b", 1], "deadline_ms": 5}},
        {"ask": {"path": "a/b", "deadline_ms": 5}, "trace": 5},
        {"reminder": {"name": "daily"}},
        {"reminder": None},
        {"caller": {"key_id": "key_1", "scopes": "admin"}},
        {"failed": 5},
    ],
)
def test_what_has_another_form_is_kept(stored: JsonObject) -> None:
    headers = Headers.from_json(stored)
    assert headers == Headers(others=stored)
    assert headers.to_json() == stored
