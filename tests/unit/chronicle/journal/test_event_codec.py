"""Events as JSON objects."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import NotFound
from chronicle.ids import BlobId, BranchId, EventId
from chronicle.journal.chain import empty_head, seal
from chronicle.journal.event_codec import event_from_object, event_object, event_view
from chronicle.journal.records import Draft, Event


def sealed(payload: str = "é", large: dict[BlobId, bytes] | None = None) -> Event:
    draft = Draft(EventId("evt_1"), "note", {"text": payload}, 3, 1_000, "msg_1", "msg_0")
    (event,) = seal(empty_head(BranchId("br_1")), [draft], large)
    return event


def test_the_keys_and_their_order_are_the_archives_format() -> None:
    event = sealed()
    line = json.dumps(event_object(event, erased=True), separators=(",", ":"))
    assert line == (
        '{"branch_id":"br_1","seq":1,"event_id":"evt_1","type":"note","turn":3,"ts":1000,"payload_ref":null,'
        f'"payload_sha256":"{event.payload_sha256}","correlation_id":"msg_1","causation_id":"msg_0",'
        f'"prev_hash":"{event.prev_hash}","hash":"{event.hash}","erased":false,'
        '"payload":"{\\"text\\":\\"\\u00e9\\"}"}'
    )
    assert "erased" not in event_object(event, erased=False)


@pytest.mark.parametrize("erased", [False, True])
def test_an_event_is_read_back(erased: bool) -> None:
    large: dict[BlobId, bytes] = {}
    events = [sealed(), sealed("x" * 100_000, large), replace(sealed(), payload=None, erased=erased)]
    assert large
    for event in events:
        described = json.loads(json.dumps(event_object(event, erased=erased)))
        assert event_from_object(described, erased=erased) == event


def test_erased_is_read_only_where_the_format_has_it() -> None:
    described = event_object(replace(sealed(), payload=None, erased=True), erased=True)
    assert not event_from_object(described, erased=False).erased


@pytest.mark.parametrize("change", [{"payload": 5}, {"seq": None}])
def test_what_is_no_event(change: dict[str, int | None]) -> None:
    described = {**event_object(sealed(), erased=True), **change}
    if change == {"seq": None}:
        del described["seq"]
    with pytest.raises(ValueError, match=r"'int'|'seq'"):
        event_from_object(described, erased=True)


def test_users_see_the_payload_wherever_it_lies() -> None:
    large: dict[BlobId, bytes] = {}
    event = sealed("x" * 100_000, large)
    blobs = MemoryBlobStore()
    with pytest.raises(NotFound):
        event_view(event, blobs)
    blobs.put(large)
    view = event_view(event, blobs)
    assert view["payload"] == {"text": "x" * 100_000}
    assert list(view) == [
        *("branch_id", "seq", "event_id", "type", "turn", "ts", "payload"),
        *("payload_ref", "correlation_id", "causation_id", "prev_hash", "hash"),
    ]
    assert event_view(replace(event, payload=None, payload_ref=None, erased=True), blobs)["payload"] is None
