"""The parser of server-sent events: the cases of the specification, any split of the bytes, and another parser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import httpx_sse
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.client.sse_parser import EventTooLong, ServerSentEvent, SseParser, parse_sse


def parse(*chunks: bytes) -> list[ServerSentEvent]:
    """The events of a stream that arrives in some chunks."""
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def data_of(*chunks: bytes) -> list[str]:
    return [event.data for event in parse(*chunks)]


# S4.34
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_in_lf_cr_or_both(end: bytes) -> None:
    stream = end.join([b"event: add", b"data: one", b"data: two", b"id: 7", b"", b"data: three", b"", b""])
    assert parse(stream) == [ServerSentEvent("one\ntwo", "add", "7"), ServerSentEvent("three", "message", "7")]


def test_a_lone_cr_dispatches_at_once_and_a_late_lf_adds_no_line() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\r") == [ServerSentEvent("a")]
    assert parser.feed(b"") == []
    assert parser.feed(b"\ndata: b\r\n\r") == [ServerSentEvent("b")]
    assert parser.feed(b"\n") == []
    assert parser.feed(b"data: c\n\n") == [ServerSentEvent("c")]


# S4.34
def test_data_of_several_lines_is_joined_by_newlines() -> None:
    assert data_of(b"data\ndata:\ndata: x\n\n") == ["\n\nx"]
    assert data_of(b"data:\n\n", b"data\n\n") == ["", ""]


def test_one_space_after_the_colon_is_left_out_and_no_other() -> None:
    assert data_of(b"data:  two\n\ndata:none\n\ndata: tail \n\ndata: a: b\n\n") == [" two", "none", "tail ", "a: b"]


# S4.34
def test_comments_and_unknown_fields_are_ignored() -> None:
    assert data_of(b": keep-alive\n\n:\n\ndata: x\n:in the middle\nfoo: bar\ndata2: y\n Data: z\n\n") == ["x"]


def test_an_event_without_data_is_not_dispatched_and_its_type_does_not_last() -> None:
    parser = SseParser()
    assert parser.feed(b"event: lost\nid: 3\n\n") == []
    assert parser.last_event_id == "3"
    assert parser.feed(b"data: x\n\n") == [ServerSentEvent("x", "message", "3")]


def test_an_id_lasts_until_another_one_and_an_empty_one_resets_it() -> None:
    parser = SseParser(last_event_id="before")
    events = parser.feed(b"data: a\n\nid: 1\ndata: b\n\ndata: c\n\nid\ndata: d\n\n")
    assert [event.id for event in events] == ["before", "1", "1", ""]


def test_an_id_with_nul_is_ignored() -> None:
    parser = SseParser()
    assert parser.feed(b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n")[-1].id == "1"


def test_the_id_of_an_event_that_did_not_end_does_not_count() -> None:
    parser = SseParser()
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    assert parser.last_event_id == "1"


def test_retry_takes_ascii_digits_only() -> None:
    parser = SseParser()
    assert parser.retry_ms is None
    parser.feed("retry: 1500\nretry: 1x\nretry: -1\nretry: ٣\nretry:\n".encode())
    assert parser.retry_ms == 1500


def test_a_byte_order_mark_is_left_out_at_the_start_only() -> None:
    assert data_of(b"\xef", b"\xbb", b"\xbfdata: x\n\n") == ["x"]
    assert data_of("data: \ufeffx\n\n\ufeffdata: y\n\n".encode()) == ["\ufeffx"]


def test_a_code_point_may_be_split_and_broken_utf_8_is_replaced() -> None:
    snow = "data: ☃\n\n".encode()
    assert data_of(snow[:7], snow[7:8], snow[8:]) == ["☃"]
    assert data_of(b"data: \xe2\x98\n\ndata: \xff!\n\n") == ["\ufffd", "\ufffd!"]


# S4.34
@pytest.mark.parametrize("cut", range(1, 16))
def test_an_event_that_the_stream_cuts_off_is_dropped(cut: int) -> None:
    stream = b"data: whole\n\ndata: cut off\n\n"
    assert data_of(stream[:-cut]) == ["whole"]


def test_an_event_over_the_limit_is_refused_in_one_line_and_in_many() -> None:
    assert SseParser(20).feed(b"data: " + b"x" * 14 + b"\n\n")[0].data == "x" * 14
    with pytest.raises(EventTooLong, match="longer than 20 bytes"):
        SseParser(20).feed(b"x" * 21)
    with pytest.raises(EventTooLong):
        SseParser(20).feed(b"data: 12345\n" * 2)
    lines = SseParser(20)
    for _ in range(100):
        assert lines.feed(b"data: 12345\n\n")


async def test_chunks_of_an_asynchronous_source_are_parsed() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for byte in b"data: x\n\ndata: y\n\n":
            yield bytes([byte])

    assert [event.data async for event in parse_sse(chunks())] == ["x", "y"]


# -- any stream, any split ---------------------------------------------------------------------------------------------

FIELDS = [b"data", b"event", b"id", b"retry", b":", b" ", b"x", b"7", b"\0", b"data: y", b": z", b"id: 9"]
LINE_ENDS = [b"\n", b"\r", b"\r\n", b"\n\n"]
ENCODED = ["☃".encode(), b"\xef\xbb\xbf", b"\xe2"]
PIECES = st.sampled_from([*FIELDS, *LINE_ENDS, *ENCODED])
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


# S4.34
@given(stream=STREAMS, data=st.data())
def test_any_split_of_any_bytes_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole, split = SseParser(), SseParser()
    assert [event for chunk in chunks for event in split.feed(chunk)] == whole.feed(stream)
    assert (split.last_event_id, split.retry_ms) == (whole.last_event_id, whole.retry_ms)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=30)
WORD = st.text(st.characters(categories=["L", "Nd", "Pd"], max_codepoint=0x7E), min_size=1, max_size=10)


@given(
    events=st.lists(st.tuples(TEXT, WORD | st.none(), WORD | st.none()), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    size=st.integers(1, 50),
)
def test_valid_streams_are_read_as_httpx_sse_reads_them(
    events: list[tuple[str, str | None, str | None]], end: str, size: int
) -> None:
    lines: list[str] = []
    for data, name, event_id in events:
        lines += [f"event: {name}"] * (name is not None) + [f"id: {event_id}"] * (event_id is not None)
        lines += [f"data: {line}" for line in data.split("\n")] + [": comment", ""]
    stream = "".join(line + end for line in lines).encode()

    ours = parse(*(stream[start : start + size] for start in range(0, len(stream), size)))
    answer = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=stream)
    theirs = [ServerSentEvent(sse.data, sse.event, sse.id) for sse in httpx_sse.EventSource(answer).iter_sse()]
    assert ours == theirs
    assert [event.data for event in ours] == [data for data, _, _ in events]
