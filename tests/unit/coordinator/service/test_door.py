"""The door of a service: who is let in, and whom a caller believes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import InvalidInput, StorageRefused
from coordinator.channel import pack, read_packet
from coordinator.documents import FileDocuments
from coordinator.door import MAX_UNPROVED, Door, DoorOptions, listening, through_door
from coordinator.service.door import no_door, open_door, published_door, withdraw_door
from tests.certificates import write_certificate
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from coordinator.door import Serve

LOCAL = DoorOptions(("127.0.0.1", 0))


def certificate(directory: Path, name: str = "one") -> DoorOptions:
    """Return the options of a door with a certificate of its own."""
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    write_certificate(cert, key)
    return replace(LOCAL, certificate=cert, key=key)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a connection: say again what is said."""
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def asked(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], data: bytes = b"hello") -> bytes:
    """Say something, and return the answer."""
    reader, writer = streams
    writer.write(data)
    answer = await reader.readexactly(len(data))
    writer.transport.abort()
    return answer


@contextlib.asynccontextmanager
async def door_at(directory: Path, options: DoorOptions = LOCAL) -> AsyncIterator[Door]:
    """Open a door to something that says again what is said, and to a socket of models that does so in capitals."""

    async def louder(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(1000)).upper())
        writer.close()

    models = await asyncio.start_unix_server(louder, directory / "models.sock")
    async with models, open_door(options, FileDocuments(directory), echo, directory / "models.sock") as door:
        yield door


@pytest.mark.parametrize("tls", [False, True])
async def test_who_reads_the_document_is_let_in(tmp_path: Path, tls: bool) -> None:
    options = certificate(tmp_path) if tls else LOCAL
    async with door_at(tmp_path, options) as door:
        told = published_door(FileDocuments(tmp_path))
        assert told == door
        assert bool(door.certificate) == tls
        assert await asked(await through_door(door, "service")) == b"hello"
        assert await asked(await through_door(door, "models")) == b"HELLO"
    assert published_door(FileDocuments(tmp_path)) is None
    with pytest.raises(OSError, match=r".+"):
        await through_door(door, "service")


@pytest.mark.usefixtures("caplog")
async def test_a_caller_without_the_secret_is_not_served(tmp_path: Path) -> None:
    async with door_at(tmp_path) as door:
        with pytest.raises(ConnectionRefusedError, match="is not that door"):
            await through_door(replace(door, secret="another one"), "service")
        lies = (b"GET / HTTP/1.1\r\n\r\n", pack([]), pack({"proof": 5}), b"\x00\x10\x00\x00", pack({"x": "y" * 5000}))
        texts = (pack({"nonce": "1", "proof": "ö"}), pack({"nonce": "\ud800", "proof": "1"}))
        for said in (b"", *lies, *texts):
            reader, writer = await asyncio.open_connection(door.host, door.port)
            assert json.loads(await read_packet(reader) or b"")["nonce"]
            writer.write(said)
            if said:
                writer.write_eof()
            else:
                writer.close()
            assert await reader.read() == b""
            writer.close()
        assert await asked(await through_door(door, "service")) == b"hello"


@pytest.mark.parametrize("tls", [False, True])
async def test_connections_that_prove_nothing_are_limited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tls: bool
) -> None:
    async with door_at(tmp_path, certificate(tmp_path) if tls else LOCAL) as door:
        known = await through_door(door, "service")
        silent = [await asyncio.open_connection(door.host, door.port) for _ in range(MAX_UNPROVED)]
        for reader, _ in silent if not tls else ():
            assert await read_packet(reader)  # the nonce: it is waited for
        for _ in range(3):
            with pytest.raises(OSError, match=r".+"):
                await through_door(door, "service")
        assert caplog.text.count("connections have proved nothing yet") == 3
        assert await asked(known) == b"hello"
        for _, writer in silent[:5]:
            writer.transport.abort()
        await until(lambda: caplog.text.count("caller_refused") >= 8, "the door notices that they are gone")
        assert await asked(await through_door(door, "service")) == b"hello"
        for _, writer in silent:
            writer.transport.abort()


@pytest.mark.parametrize("tls", [False, True])
async def test_a_connection_whose_other_end_reads_nothing_goes_on(tmp_path: Path, tls: bool) -> None:
    reads = asyncio.Event()
    size = 16_000_000

    async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reads.wait()
        got = len(await reader.readexactly(size))
        writer.write(b"%d" % got)

    async def find(asked: Mapping[str, Any]) -> Serve:
        return read_late

    options = certificate(tmp_path) if tls else LOCAL
    async with listening(options, "secret", find) as door:
        reader, writer = await through_door(door, "service", patience_s=1)
        writer.write(b"x" * size)
        connection = writer.get_extra_info("socket")

        def probes_answered() -> int:
            """The other machine has said so often that there is no room for more: the kernel asks ever more rarely."""
            return int(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[4])

        await until(lambda: probes_answered() >= 4, "the connection is full, for longer than the patience")
        reads.set()
        assert await reader.read(100) == b"%d" % size
        writer.close()


@pytest.mark.usefixtures("caplog")
async def test_a_proof_is_good_for_one_connection(tmp_path: Path) -> None:
    """One that was read on the network opens no other connection."""
    said: list[bytes] = []

    async def listen_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(door.host, door.port)
        writer.write(pack(json.loads(await read_packet(there) or b"")))
        data = await read_packet(reader)
        assert data is not None
        said.append(data)
        back.write(pack(json.loads(data)))
        writer.write(pack(json.loads(await read_packet(there) or b"")))
        writer.close()
        back.close()

    async with door_at(tmp_path) as door:
        async with await asyncio.start_server(listen_in, "127.0.0.1", 0) as between:
            port = between.sockets[0].getsockname()[1]
            _, writer = await through_door(replace(door, port=port), "service")
            writer.close()
        reader, writer = await asyncio.open_connection(door.host, door.port)
        await read_packet(reader)
        writer.write(pack(json.loads(said[0])))
        assert await reader.read() == b""
        writer.close()


async def test_what_is_not_the_service_is_not_believed(tmp_path: Path) -> None:
    answers: list[list[Any]] = [[], [{}], [{"nonce": "1"}], [{"nonce": "1"}, {"proof": "no"}], [[1], [2]]]
    answers += [[{"nonce": "1"}, {"proof": "ö"}], [{"nonce": "\ud800"}]]

    ended = 0

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        for answer in answers[0]:
            writer.write(pack(answer))
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.write_eof()
            await reader.read()
        writer.transport.abort()
        ended += 1

    async with await asyncio.start_server(impostor, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for _ in range(len(answers)):
            with pytest.raises(ConnectionRefusedError):
                await through_door(Door("127.0.0.1", port, "secret"), "service")
            answers.append(answers.pop(0))
        await until(lambda: ended == len(answers))


@pytest.mark.usefixtures("caplog")
async def test_a_certificate_is_known_by_the_document(tmp_path: Path) -> None:
    async with door_at(tmp_path, certificate(tmp_path)) as door:
        with pytest.raises(ConnectionRefusedError, match="another certificate"):
            await through_door(replace(door, certificate="0" * 64), "service")
        assert await asked(await through_door(door, "service")) == b"hello"


async def test_the_next_service_keeps_its_door(tmp_path: Path) -> None:
    async with door_at(tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        documents = FileDocuments(tmp_path)
        async with open_door(LOCAL, documents, echo, other / "models.sock") as second:
            assert published_door(documents) == second
            # The first one's end comes late.
        documents.write("service", json.dumps({"host": "h", "port": 1, "secret": "s"}).encode())
    assert published_door(documents) == Door("h", 1, "s")


def test_a_door_of_a_service_that_was_killed_is_withdrawn(tmp_path: Path) -> None:
    documents = FileDocuments(tmp_path)
    withdraw_door(documents)
    assert documents.read("service") is None
    documents.write("service", json.dumps({"host": "h", "port": 1, "secret": "s"}).encode())
    withdraw_door(documents)
    assert published_door(documents) is None


async def test_a_service_without_a_door_says_so_and_goes_on_meanwhile(tmp_path: Path) -> None:
    goes_on = threading.Event()

    class SlowDocuments(FileDocuments):
        def read(self, name: str) -> bytes | None:
            assert goes_on.wait(60), "the event loop waits for the database"
            return super().read(name)

    documents = SlowDocuments(tmp_path)
    documents.write("service", json.dumps({"host": "h", "port": 1, "secret": "s"}).encode())
    asyncio.get_running_loop().call_later(0.01, goes_on.set)
    async with no_door(documents):
        assert published_door(documents) is None


@pytest.mark.usefixtures("caplog")
async def test_a_door_closes_while_the_database_is_away(tmp_path: Path) -> None:
    documents = FileDocuments(tmp_path)
    async with open_door(LOCAL, documents, echo, tmp_path / "models.sock"):
        (tmp_path / "service").unlink(missing_ok=True)
        (tmp_path / "service").mkdir()
        with pytest.raises(StorageRefused):
            documents.read("service")


async def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    async with door_at(tmp_path) as door:
        with pytest.raises(InvalidInput, match=f"127.0.0.1:{door.port} cannot be listened at"):
            async with door_at(tmp_path, DoorOptions(("127.0.0.1", door.port))):
                pass
    for everywhere in ("0.0.0.0", "::"):
        with pytest.raises(InvalidInput, match="give PODIUM_SERVICE_HOST"):
            async with door_at(tmp_path, DoorOptions((everywhere, 0))):
                pass
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(InvalidInput, match="no.pem and its key cannot be used"):
        async with door_at(tmp_path, replace(LOCAL, certificate=tmp_path / "no.pem")):
            pass


async def test_a_door_that_closes_ends_its_connections(tmp_path: Path) -> None:
    async with door_at(tmp_path) as door:
        reader, writer = await through_door(door, "service")
    await until(reader.at_eof, "the connection stays")
    writer.close()


async def test_a_door_that_cannot_look_does_not_say_that_nobody_is_there(caplog: pytest.LogCaptureFixture) -> None:
    """Its process has too many open files: what is behind it may be alive."""

    async def find(_: Mapping[str, Any]) -> Serve:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with listening(LOCAL, "secret", find) as door:
        with pytest.raises(ConnectionRefusedError):
            await through_door(door, "host", host="host_1")
    assert "Too many open files" in caplog.text
