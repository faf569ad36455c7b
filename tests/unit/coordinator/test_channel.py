"""Packets between processes of a home, their JSON, and writes in batches."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from chronicle.errors import InvalidInput
from coordinator.channel import MAX_PACKET, BatchedWriter, PacketTooLong, from_json, pack, read_packet, to_json
from podium.turn.busy import BusyPolicy

DEADLINE_S = 30


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1, "frame": {"type": "message_update", "delta": "naïve\n"}},
        ["\ud800 alone", "a pair \U0001f600"],
        [2**63 - 1, -(2**63), 2**64 - 1, 2**64, -(10**30), 1234567890123456789.5],
        [None, True, 0.1, 1e300, "", {}, []],
    ],
)
def test_values_come_back_as_they_were(value: Any) -> None:
    line = to_json(value)
    assert b"\n" not in line
    back = from_json(line)
    assert back == value
    assert repr(back) == repr(value), "an integer stays one"


def test_a_name_of_an_enumeration_is_its_text() -> None:
    assert from_json(to_json({"when_busy": BusyPolicy.STEER})) == {"when_busy": "steer"}


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[1,]"])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInput, match="not JSON"):
        from_json(text)


async def test_what_is_written_in_one_iteration_is_sent_at_once_and_in_order() -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, protocol = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(reader), sock=ours)
    writer = BatchedWriter(asyncio.StreamWriter(transport, protocol, reader, loop))
    async with asyncio.timeout(DEADLINE_S):
        for part in (b"a", b"b", b"c"):
            writer.write(part)
            await writer.drain()
        with pytest.raises(BlockingIOError):
            theirs.recv(100)
        assert await loop.sock_recv(theirs, 100) == b"abc"
        writer.write(b"d")
        assert await loop.sock_recv(theirs, 100) == b"d"
        writer.write(b"the ")
        writer.write(b"last")
        writer.close()
        assert await loop.sock_recv(theirs, 100) == b"the last"
        assert await loop.sock_recv(theirs, 100) == b""
        writer.write(b"too late")
        await asyncio.sleep(0)
        with pytest.raises(ConnectionError):
            await writer.drain()
    theirs.close()


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_packets_come_in_order_up_to_one_that_is_cut_off() -> None:
    values = [{"id": 1}, {"text": "é\n" * 100_000}, {"": []}]
    data = b"".join(map(pack, values))
    for cut in (0, 1, len(pack(values[-1])) - 1):
        reader = reader_of(data[: len(data) - cut])
        found = []
        while (packet := await read_packet(reader)) is not None:
            found.append(from_json(packet))
        assert found == values[: None if cut == 0 else -1]


async def test_a_packet_has_a_limit_on_both_sides() -> None:
    with pytest.raises(PacketTooLong, match=rf"^it has {MAX_PACKET + 2} bytes, and a packet at most {MAX_PACKET}$"):
        pack("x" * MAX_PACKET)
    assert len(pack("x" * (MAX_PACKET - 2))) == MAX_PACKET + 4
    with pytest.raises(PacketTooLong):  # before it is read
        await read_packet(reader_of((MAX_PACKET + 1).to_bytes(4, "big") + b"x"))
