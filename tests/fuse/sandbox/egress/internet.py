"""An internet for tests: names with public addresses, whose servers are on this machine."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from podium.sandbox.egress.outside import Outside
from tests.certificates import write_certificate

PUBLIC: Final = "93.184.216.34"
HOSTS: Final = ("files.example.org", "other.example.org", "api.example.org", "rebinds.example.org")


class Internet:
    """One server for all names, at ports 80 (plain) and 443 (TLS): it answers with files, and keeps what it is sent."""

    def __init__(self, directory: Path) -> None:
        self.certificate = directory / "certificate"
        write_certificate(self.certificate, directory / "key", hosts=HOSTS)
        self._key = directory / "key"
        self.addresses: dict[str, list[Sequence[str]]] = {name: [[PUBLIC]] for name in HOSTS}
        """By name what each question for it is answered with; the last answer stays."""
        self.files: dict[str, bytes] = {"/": b"hello\n"}
        self.connected: list[tuple[str, int]] = []
        self.requests: list[bytes] = []
        self._ports: dict[int, int] = {}

    def outside(self) -> Outside:
        return Outside(self._resolve, self._connect, ssl.create_default_context(cafile=str(self.certificate)))

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        if host == "hangs.example.org":
            await asyncio.Event().wait()
        if host not in self.addresses:
            raise OSError(f"no such name: {host}:{port}")
        answers = self.addresses[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def _connect(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.connected.append((address, port))
        return await asyncio.open_connection("127.0.0.1", self._ports[port])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Internet]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self._key)
        async with (
            await asyncio.start_server(self._answer, "127.0.0.1", 0) as plain,
            await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=context) as tls,
        ):
            self._ports = {80: plain.sockets[0].getsockname()[1], 443: tls.sockets[0].getsockname()[1]}
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"), 0
            )
            self.requests.append(head + await reader.readexactly(length))
            body = self.files.get(head.split()[1].decode())
            status, body = ("404 Not Found", b"") if body is None else ("200 OK", body)
            kind = "Content-Type: text/html"
            answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{kind}\r\nConnection: close\r\n\r\n"
            writer.write(answer.encode() + body)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
