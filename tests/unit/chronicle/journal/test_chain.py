"""The hash chain, against its definition in words, and golden values that must never change."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, InvalidInput, NotFound
from chronicle.ids import BlobId, BranchId, EventId, SessionId
from chronicle.journal.chain import (
    MAX_INLINE,
    MAX_SEQ,
    catalogue_genesis,
    catalogue_hash,
    check_events,
    empty_head,
    event_hash,
    genesis_hash,
    head_after,
    seal,
)
from chronicle.journal.payloads import payload_of
from chronicle.journal.records import BranchChange, CatalogueEntry, Draft, Event, Head, Session

BRANCH = BranchId("br_1")
HEAD = empty_head(BRANCH)


def drafts(*payloads: object) -> list[Draft]:
    return [
        Draft(EventId(f"evt_{number}"), "note", payload, number, 1_000 + number, "msg_1", None)  # type: ignore[arg-type]
        for number, payload in enumerate(payloads, 1)
    ]


def by_the_book(event: Event) -> str:
    row = [
        "chronicle.event.v1",
        event.branch_id,
        event.seq,
        event.event_id,
        event.type,
        event.turn,
        event.ts,
        event.payload_sha256,
        event.payload_ref,
        event.correlation_id,
        event.causation_id,
        event.prev_hash,
    ]
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return "v1:" + hashlib.sha256(text.encode()).hexdigest()


def test_golden() -> None:
    """Stored journals depend on these."""
    assert genesis_hash(BRANCH) == "v1:" + hashlib.sha256(b'["chronicle.branch.v1","br_1"]').hexdigest()
    first, second = seal(HEAD, drafts({"b": 1.0, "a": "é"}, None))
    assert first.payload == '{"a":"é","b":1}'.encode()
    assert first.hash == "v1:9eeb002781e21ecd89964fea9bc9a9cd9a575bd3594b312dbf6a16a87e8ff441"
    assert second.hash == "v1:28dde65e618c88aab43bb0d6d5be47126362e54f4a101babd13a34550403daef"
    session = Session(SessionId("ses_1"), "hello/alice", BRANCH, 5)
    assert catalogue_genesis(session) == "v1:9015ff7b65ab15a35052dd9ab62b0838e9d7bb6ae1b36674f7489067f0428bf3"
    entry = CatalogueEntry(
        SessionId("ses_1"), 1, BranchChange.CREATED, BRANCH, None, 0, HEAD.hash, 5, catalogue_genesis(session), ""
    )
    assert catalogue_hash(entry) == "v1:a3ed3fda0cee08d1590b53997d7e149bfc3dd8f98fca4eab2bfd9f965eb0620e"


@given(st.text(min_size=1), st.text(min_size=1), st.none() | st.text(min_size=1), st.integers(0, 2**63 - 1))
def test_the_hash_is_as_documented(event_id: str, event_type: str, correlation_id: str | None, ts: int) -> None:
    draft = Draft(EventId(event_id), event_type, {}, 1, ts, correlation_id, None)
    (event,) = seal(HEAD, [draft])
    assert event.hash == event_hash(event) == by_the_book(event)


def test_every_field_counts() -> None:
    (event,) = seal(HEAD, drafts({"a": 1}))
    other: dict[str, Any] = {
        "branch_id": BranchId("br_2"),
        "seq": 2,
        "event_id": EventId("evt_x"),
        "type": "x",
        "turn": 9,
        "ts": 9,
        "payload_ref": BlobId("x"),
        "payload_sha256": "0" * 64,
        "correlation_id": None,
        "causation_id": "msg_1",
        "prev_hash": "v1:",
    }
    names = {field.name for field in dataclasses.fields(Event)} - {"payload", "hash", "erased"}
    assert other.keys() == names
    hashes = {event_hash(dataclasses.replace(event, **{name: value})) for name, value in other.items()}
    assert len(hashes | {event.hash}) == len(other) + 1


def test_values_do_not_run_into_each_other() -> None:
    one = Draft(EventId("evt"), 'a","b', 1, 1, 1)
    two = Draft(EventId('evt","a'), "b", 1, 1, 1)
    assert seal(HEAD, [one])[0].hash != seal(HEAD, [two])[0].hash


def test_sealing_goes_on_from_the_head() -> None:
    events = seal(HEAD, drafts(1, 2))
    head = head_after(HEAD, events)
    assert head == Head(BRANCH, 2, EventId("evt_2"), events[-1].hash, 2)
    more = seal(head, [Draft(EventId("evt_3"), "note", 3, 2, 1)])
    assert more[0].prev_hash == events[-1].hash
    assert check_events(HEAD, (*events, *more)) == head_after(head, more)
    assert head_after(head, ()) == head


@pytest.mark.parametrize(
    ("draft", "why"),
    [
        (Draft(EventId("evt"), "note", float("nan"), 1, 1), "payload of note evt: not JSON"),
        (Draft(EventId("evt"), "note", {"a": [b"x"]}, 1, 1), "at /a/0"),  # type: ignore[list-item]
        (Draft(EventId(""), "note", 1, 1, 1), "must not be empty"),
        (Draft(EventId("evt"), "", 1, 1, 1), "must not be empty"),
        (Draft(EventId("evt"), "note", 1, 1, 1, ""), "must not be empty"),
        (Draft(EventId("evt"), "note", 1, -1, 1), "turn -1"),
        (Draft(EventId("evt"), "note", 1, 2**63, 1), "turn"),
        (Draft(EventId("evt"), "note", 1, 1, 2**63), "cannot follow"),
        (Draft(EventId("evt\ud800"), "note", 1, 1, 1), "evt"),
    ],
)
def test_what_cannot_be_sealed(draft: Draft, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        seal(HEAD, [draft])


def test_turns_do_not_go_back() -> None:
    head = dataclasses.replace(HEAD, turn=5)
    with pytest.raises(InvalidInput, match="turn 4"):
        seal(head, [Draft(EventId("evt"), "note", 1, 4, 1)])
    with pytest.raises(InvalidInput, match="over"):
        seal(dataclasses.replace(HEAD, seq=MAX_SEQ), drafts(1))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"payload": b"2"}, "payload was changed"),
        ({"ts": 0}, "does not have its hash"),
        ({"hash": "v1:0"}, "does not have its hash"),
        ({"seq": 3}, "missing or out of order"),
        ({"prev_hash": "v1:0"}, "does not follow"),
    ],
)
def test_checking_names_the_event(change: dict[str, Any], why: str) -> None:
    first, second = seal(HEAD, drafts(1, 1))
    second = dataclasses.replace(second, **change)
    with pytest.raises(Corrupt, match=f"evt_2.*{why}"):
        check_events(HEAD, [first, second])


def test_an_erased_payload_still_verifies() -> None:
    first, second = seal(HEAD, drafts({"secret": 1}, 2))
    erased = dataclasses.replace(first, payload=None)
    assert check_events(HEAD, [erased, second]) == head_after(HEAD, [first, second])


def test_large_payloads_go_out_of_line() -> None:
    large: dict[BlobId, bytes] = {}
    small, big = seal(HEAD, drafts("x" * (MAX_INLINE - 2), "x" * (MAX_INLINE - 1)), large)
    assert small.payload_ref is None
    assert big.payload is None
    assert big.payload_ref is not None
    assert payload_of(small) == "x" * (MAX_INLINE - 2)
    store = MemoryBlobStore()
    with pytest.raises(NotFound, match="is not here"):
        payload_of(big)
    with pytest.raises(NotFound):
        payload_of(big, store)
    store.put(large)
    assert payload_of(big, store) == "x" * (MAX_INLINE - 1)
    assert check_events(HEAD, [small, big]).seq == 2
    with pytest.raises(NotFound, match="was erased"):
        payload_of(dataclasses.replace(big, erased=True), store)
    with pytest.raises(Corrupt):
        payload_of(dataclasses.replace(small, payload=b"1"))
    (inline, _) = seal(HEAD, drafts("x" * MAX_INLINE, 1))
    assert inline.payload is not None
    assert inline.payload_ref is None


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=4), max_size=8))
def test_times_never_go_back_and_are_those_of_the_clock_otherwise(commits: list[list[int]]) -> None:
    """Commits of writers with any clocks, each on the head that the one before has left."""
    head = HEAD
    events: list[Event] = []
    for number, times in enumerate(commits):
        sealed = seal(head, [Draft(EventId(f"{number} {at}"), "note", None, 1, ts) for at, ts in enumerate(times)])
        head = head_after(head, sealed)
        events += sealed
    given_times = [ts for times in commits for ts in times]
    assert [event.ts for event in events] == [max(given_times[: at + 1]) for at in range(len(given_times))]
    assert check_events(HEAD, events).ts == head.ts
