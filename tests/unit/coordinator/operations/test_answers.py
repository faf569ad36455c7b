"""Answers put together from frames: those of the last attempt count."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.operations.answers import answer_of
from coordinator.operations.errors import MessageCancelled, MessageFailed, MessageNotAnswered, MessageParked

END = {"type": "turn_end", "turn": 2, "version": 9, "patch": []}


def said(reply_id: str, text: str) -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "reply_id": reply_id},
        {"type": "message_end", "reply_id": reply_id, "text": text},
    ]


def test_only_the_last_attempt_counts() -> None:
    frames = [
        {"type": "turn_start", "turn": 2, "attempt": 1},
        *said("rpl_1", "lost"),
        {"type": "turn_retry", "attempt": 1, "error": {"type": "E", "message": "m"}},
        {"type": "turn_start", "turn": 2, "attempt": 2},
        {"type": "message_start", "reply_id": "rpl_2"},
        {"type": "message_update", "reply_id": "rpl_2", "delta": "ke"},
        *said("rpl_3", "second"),
        {"type": "message_end", "reply_id": "rpl_2", "text": "kept, "},
        {**END, "data": [1]},
    ]
    answer = answer_of("notes/a", "msg_1", frames)
    assert answer is not None
    assert (answer.text, answer.data, answer.turn, answer.version) == ("kept, second", [1], 2, 9)
    assert [reply.reply_id for reply in answer.replies] == ["rpl_2", "rpl_3"]


def test_without_an_end_there_is_no_answer() -> None:
    assert answer_of("notes/a", "msg_1", said("rpl_1", "so far")) is None


@pytest.mark.parametrize(
    ("error_type", "parked", "kind"),
    [
        ("ValueError", True, MessageParked),
        ("Cancelled", False, MessageCancelled),
        ("StorageRefused", False, MessageFailed),
    ],
)
def test_an_error_ends_the_wait(error_type: str, parked: bool, kind: type[MessageNotAnswered]) -> None:
    frame = {"type": "error", "error": {"type": error_type, "message": "why"}, "parked": parked, "attempt": 3}
    with pytest.raises(kind) as raised:
        answer_of("notes/a", "msg_1", [frame])
    assert (raised.value.message_id, raised.value.error_type, raised.value.error_message) == (
        "msg_1",
        error_type,
        "why",
    )
