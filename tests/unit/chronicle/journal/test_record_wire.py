"""Records that processes of agents send: a value of another type would stop all who read the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chronicle.errors import InvalidInput
from chronicle.ids import MessageId
from chronicle.journal.record_wire import dumps, loads
from chronicle.journal.records import OutboxMessage, SetReminder

SENT = OutboxMessage(MessageId("msg_1"), "hello/a", b"{}", 5, "hello/b", "default", {"trace": "x"})
REMINDER = SetReminder("daily", 5, b"{}")


@pytest.mark.parametrize("record", [SENT, replace(SENT, sender=None, headers=None), REMINDER])
def test_records_arrive_as_they_were(record: object) -> None:
    assert loads(dumps((record,))) == (record,)


@pytest.mark.parametrize(
    ("record", "forged"),
    [
        (SENT, {"message_id": b"msg_1"}),
        (SENT, {"target": 5}),
        (SENT, {"body": "{}"}),
        (SENT, {"created_ms": "soon"}),
        (SENT, {"sender": 5}),
        (SENT, {"namespace": None}),
        (SENT, {"headers": [1]}),
        (REMINDER, {"name": b"daily"}),
        (REMINDER, {"due_ms": "soon"}),
        (REMINDER, {"due_ms": 1.5}),
        (REMINDER, {"due_ms": (1 << 64) - 1}),
        (REMINDER, {"body": None}),
    ],
)
def test_fields_of_other_types_are_refused(record: Any, forged: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="a field of a"):
        loads(dumps((replace(record, **forged),)))
