"""What a request must be to reach the application: its host, origin, type, pace and number."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import StreamingResponse

from chronicle.clock import ManualClock, SystemClock
from chronicle.errors import InvalidInput
from coordinator.gateway.errors import add_handlers
from coordinator.gateway.process.serving import server_config
from coordinator.gateway.protection.body_limit import BodyLimit
from coordinator.gateway.protection.middleware import Protection
from coordinator.gateway.protection.rules import Rules, is_loopback_name, read_rules
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator


class Thing(BaseModel):
    text: str = ""


def application() -> FastAPI:
    """A small application with the error shape of the gateway's."""
    app = FastAPI()
    add_handlers(app)

    @app.get("/thing")
    async def get(request: Request) -> dict[str, str | None]:
        return {"client": request.client.host if request.client else None}

    @app.get("/healthz")
    @app.get("/readyz")
    async def probe() -> str:
        return "ok"

    @app.post("/thing")
    async def post(thing: Thing) -> Thing:
        return thing

    @app.post("/go")
    async def go() -> str:
        return "gone"

    @app.get("/endless")
    async def endless() -> StreamingResponse:
        return StreamingResponse(pieces_without_end())

    @app.put("/thing")
    async def put(request: Request) -> int:
        return len(await request.body())

    app.add_middleware(BodyLimit, body_bytes=1000, upload_bytes=200_000)
    return app


ENDED: list[str] = []
"""The endless answers that have ended."""


async def pieces_without_end() -> AsyncGenerator[bytes]:
    try:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)
    finally:
        ENDED.append("endless")


def client(
    rules: Rules | None = None, *, address: str = "127.0.0.1", clock: ManualClock | None = None
) -> httpx.AsyncClient:
    """A client of the protected application, without a socket."""
    protected = Protection(application(), rules or Rules(), clock or ManualClock())
    transport = httpx.ASGITransport(protected, client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700")


def code_of(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    assert {"message", "type", "code", "param"} <= error.keys()
    return str(error["code"])


# -- hosts and origins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8700",
        "LOCALHOST",
        "127.0.0.1:1",
        "127.8.8.8",
        "[::1]",
        "[::1]:8700",
        "a.localhost",
        "localhost.",
    ],
)
async def test_names_of_loopback_are_allowed(host: str) -> None:
    async with client() as http:
        assert (await http.get("/thing", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8700",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "10.0.0.1",
        "[::1",
        "[::1]x",
        "localhost:x",
        "é",
    ],
)
async def test_names_of_others_are_refused(host: str) -> None:
    async with client() as http:
        answer = await http.get("/thing", headers=[(b"Host", host.encode())])
        assert (answer.status_code, code_of(answer)) == (403, "host_not_allowed")
        for probe in ("/healthz", "/readyz"):
            answer = await http.get(probe, headers=[(b"Host", host.encode())])
            assert answer.status_code == 200, "an orchestrator may know the gateway by any name"


async def test_other_names_can_be_allowed() -> None:
    rules = read_rules(host="podium.example", allowed_hosts=["Agents.Example", "[2001:DB8::1]"])
    async with client(rules) as http:
        for host, status in (
            ("podium.example:8700", 200),
            ("agents.example", 200),
            ("[2001:db8::1]:8700", 200),
            ("[2001:db8::2]:8700", 403),
            ("x.agents.example", 403),
        ):
            assert (await http.get("/thing", headers={"Host": host})).status_code == status
    async with client(Rules(allowed_hosts=frozenset({"*"}))) as http:
        assert (await http.get("/thing", headers={"Host": "any.example"})).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1:8701",
        "https://127.0.0.1:8700",
        "http://127.0.0.1:8700.evil.example",
    ],
)
@pytest.mark.parametrize(("method", "accept"), [("POST", "*/*"), ("PUT", "*/*"), ("GET", "text/event-stream")])
async def test_pages_of_other_sites_are_refused(origin: str, method: str, accept: str) -> None:
    async with client() as http:
        answer = await http.request(method, "/thing", json={}, headers={"Origin": origin, "Accept": accept})
        assert (answer.status_code, code_of(answer)) == (403, "origin_not_allowed")
        assert "access-control-allow-origin" not in answer.headers


async def test_the_gateways_own_pages_may_call() -> None:
    async with client() as http:
        answer = await http.post("/thing", json={}, headers={"Origin": "http://127.0.0.1:8700"})
    assert answer.status_code == 200


async def test_cors_is_off_unless_an_origin_is_given() -> None:
    ask = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    async with client() as http:
        assert (await http.options("/thing", headers=ask)).status_code == 403
    async with client(read_rules(host="127.0.0.1", origins=["https://app.example"])) as http:
        allowed = await http.options("/thing", headers={**ask, "Access-Control-Request-Headers": "authorization"})
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        answer = await http.post("/thing", json={}, headers={"Origin": "https://app.example"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://app.example")
        other = await http.options("/thing", headers={**ask, "Origin": "https://evil.example"})
        assert other.status_code == 403


# -- types of bodies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
async def test_a_body_that_is_not_json_is_refused(kind: str) -> None:
    async with client() as http:
        answer = await http.post("/thing", content=b'{"text": "x"}', headers={"Content-Type": kind} if kind else {})
        assert (answer.status_code, code_of(answer)) == (415, "unsupported_media_type")
        empty = await http.post("/go", headers={"Content-Type": kind} if kind else {})
        assert empty.status_code == (415 if kind else 200)


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"]
)
async def test_json_is_accepted(kind: str) -> None:
    async with client() as http:
        answer = await http.post("/thing", content=b'{"text": "x"}', headers={"Content-Type": kind})
        assert answer.json() == {"text": "x"}
        assert (await http.put("/thing", content=b"any bytes", headers={"Content-Type": "image/png"})).json() == 9


# -- rates -------------------------------------------------------------------------------------------------------------


async def test_an_address_has_a_limit_of_requests() -> None:
    clock, rules = ManualClock(), Rules(requests_per_s=10)
    async with client(rules, address="10.0.0.1", clock=clock) as http:
        for _ in range(rules.burst):
            assert (await http.get("/thing")).status_code == 200
        answer = await http.get("/thing")
        assert (answer.status_code, code_of(answer)) == (429, "too_many_requests")
        assert answer.headers["retry-after"] == "1"
        clock.advance(1.0)
        assert (await http.get("/thing")).status_code == 200


async def test_loopback_has_none() -> None:
    async with client(Rules(requests_per_s=1)) as http:
        for _ in range(50):
            assert (await http.get("/thing")).status_code == 200


# -- on a socket -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(rules: Rules) -> AsyncIterator[int]:
    """Serve the application under uvicorn; yield the port."""
    config = server_config(application(), rules, SystemClock())
    config.port = 0
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.serve(), name="server")
        await until(lambda: server.started, "the server did not start")
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def said(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    """Read one answer with a JSON body and the end of the connection."""
    async with asyncio.timeout(30):
        data = await reader.read()
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize("sent", [b"", b"GET /thing HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
async def test_a_client_that_sends_headers_for_ever_is_cut_off(sent: bytes) -> None:
    async with serving(Rules(header_timeout_s=0.5)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        drip = asyncio.create_task(dripping(writer) if sent else asyncio.sleep(0), name="drip")
        status, headers, body = await said(reader)
        assert (status, body["error"]["code"], headers["connection"]) == (408, "headers_too_slow", "close")
        drip.cancel()
        writer.close()


async def dripping(writer: asyncio.StreamWriter) -> None:
    """Send a byte of a header from time to time."""
    while not writer.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.05)


async def test_a_second_request_that_does_not_end_is_cut_off_too() -> None:
    request = b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with serving(Rules(header_timeout_s=0.5)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request + b"GET /thing HT")
        async with asyncio.timeout(30):
            assert await reader.readuntil(b'{"client":"127.0.0.1"}')
        assert (await said(reader))[0] == 408
        writer.close()


@pytest.mark.parametrize("how", ["length", "chunked"])
async def test_a_body_that_comes_too_slowly_is_cut_off(how: str) -> None:
    async with serving(Rules(body_timeout_s=0.5, body_bytes_per_s=1_000_000)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        kind = "Content-Length: 500" if how == "length" else "Transfer-Encoding: chunked"
        writer.write(
            f"POST /thing HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{kind}\r\n\r\n".encode()
        )
        writer.write(b'{"te' if how == "length" else b'4\r\n{"te\r\n')
        status, headers, body = await said(reader)
        assert (status, body["error"]["code"], headers["connection"]) == (408, "body_too_slow", "close")
        writer.close()


async def test_a_long_body_that_comes_steadily_is_not_cut_off() -> None:
    async with serving(Rules(body_timeout_s=0.6, body_bytes_per_s=10_000)) as port:

        async def slowly() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"x" * 10_000
                await asyncio.sleep(0.15)

        async with httpx.AsyncClient(timeout=30) as http:
            assert (await http.put(f"http://127.0.0.1:{port}/thing", content=slowly())).json() == 100_000


async def reading_endless(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readline()
    return reader, writer


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off() -> None:
    ENDED.clear()
    async with serving(Rules(stall_timeout_s=0.3)) as port:
        _, writer = await reading_endless(port)
        await until(lambda: ENDED, "the answer goes on")
        writer.transport.abort()


async def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    ENDED.clear()
    async with serving(Rules(stall_timeout_s=1.0)) as port:
        reader, writer = await reading_endless(port)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 2.5
        while loop.time() < end_s:
            assert await reader.read(65536)
            await asyncio.sleep(0.01)
        assert not ENDED
        writer.transport.abort()
        await until(lambda: ENDED, "the answer goes on without its reader")


async def test_a_body_over_the_limit() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    async with serving(Rules()) as port, httpx.AsyncClient(timeout=30) as http:
        url = f"http://127.0.0.1:{port}/thing"
        answer = await http.post(url, json={"text": "x" * 1000})
        assert (answer.status_code, code_of(answer)) == (413, "body_too_large")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /thing HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            b"3e8\r\n" + b"x" * 1000 + b"\r\n3e8\r\n" + b"x" * 1000 + b"\r\n"
        )
        status, _, body = await said(reader)
        assert (status, body["error"]["code"]) == (413, "body_too_large")
        writer.close()


async def test_what_is_not_http() -> None:
    async with serving(Rules()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01\x02\x00 hello\r\n\r\n")
        status, _, body = await said(reader)
        assert (status, body["error"]["code"], body["error"]["type"]) == (400, "invalid_http", "invalid_request_error")
        writer.close()


async def test_headers_that_came_at_once_are_measured_too() -> None:
    async with client() as http:
        for headers in ({"X-Long": "x" * 66_000}, {f"X-{number}": "x" * 60 for number in range(1100)}):
            answer = await http.get("/thing", headers=headers)
            assert (answer.status_code, code_of(answer)) == (431, "headers_too_large")
            assert answer.headers["connection"] == "close"
        assert (await http.get("/thing", headers={"X-Long": "x" * 60_000})).status_code == 200


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "sent",
    [
        b"GET /thing HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /thing HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: value\r\n" * 14_000 + b"\r\n",
        b"GET /thing?" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"x" * 200_000,
    ],
    ids=["one header", "many headers", "a long line", "no end of a line"],
)
async def test_headers_that_are_too_long(sent: bytes, at_once: bool) -> None:
    async with serving(Rules()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for start in range(0, len(sent), len(sent) if at_once else 8192):
            writer.write(sent[start : start + (len(sent) if at_once else 8192)])
            await writer.drain()
        status, headers, body = await said(reader)
        assert (status, body["error"]["code"], headers["connection"]) == (431, "headers_too_large", "close")
        writer.close()


@pytest.mark.parametrize(
    "headers",
    [
        b"HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4",
        b"HTTP/1.0\r\nTransfer-Encoding: chunked",
    ],
)
async def test_a_request_whose_length_is_not_certain_is_refused_and_ends_its_connection(headers: bytes) -> None:
    async with serving(Rules()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"PUT /thing " + headers + b"\r\nHost: localhost\r\n\r\n0\r\n\r\n"
            b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        status, answered, body = await said(reader)
        assert (status, body["error"]["code"], answered["connection"]) == (400, "invalid_http", "close")
        writer.close()


async def test_too_many_connections() -> None:
    async with serving(Rules(connections=3)) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in held:
            writer.write(b"GET /thing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for reader, _ in held:
            async with asyncio.timeout(30):
                await reader.readuntil(b'{"client":"127.0.0.1"}')
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        status, headers, body = await said(reader)
        assert (status, body["error"]["code"], headers["retry-after"]) == (429, "too_many_connections", "1")
        writer.close()
        held[0][1].close()
        await held[0][1].wait_closed()
        async with httpx.AsyncClient() as http:

            async def is_free() -> bool:
                return (await http.get(f"http://127.0.0.1:{port}/thing")).status_code == 200

            async with asyncio.timeout(30):
                while not await is_free():
                    await asyncio.sleep(0.02)
        for _, writer in held[1:]:
            writer.close()


async def test_addresses_of_trusted_proxies_only_are_believed() -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.9"}
    for rules, client_ in (
        (Rules(), "127.0.0.1"),
        (read_rules(host="x", trusted_proxies=["127.0.0.0/8"]), "203.0.113.9"),
    ):
        async with serving(rules) as port, httpx.AsyncClient() as http:
            answer = await http.get(f"http://127.0.0.1:{port}/thing", headers=forwarded)
            assert answer.json() == {"client": client_}


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tls_cert": "/nowhere.pem"}, "both files"),
        ({"tls_cert": "/nowhere.pem", "tls_key": "/nowhere.key"}, "there is no file"),
        ({"origins": ["app.example"]}, "not an origin"),
        ({"origins": ["https://app.example/path"]}, "not an origin"),
        ({"origins": ["https://*.example"]}, "not an origin"),
        ({"trusted_proxies": ["proxy.example"]}, "not an address or a network"),
        ({"allowed_hosts": ["agents.example:8700"]}, "without scheme and port"),
        ({"allowed_hosts": ["[::1]:8700"]}, "without scheme and port"),
        ({"allowed_hosts": ["https://agents.example"]}, "without scheme and port"),
    ],
)
def test_options_that_cannot_be_used(options: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {name: Path(value) if isinstance(value, str) else value for name, value in options.items()}
    with pytest.raises(InvalidInput, match=says):
        read_rules(host="127.0.0.1", **given)


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text("not PEM")
    rules = read_rules(host="127.0.0.1", tls_cert=tmp_path / "cert", tls_key=tmp_path / "key")
    with pytest.raises(InvalidInput, match="cannot be used"):
        server_config(application(), rules, SystemClock())


@pytest.mark.parametrize(
    ("name", "loopback"), [("::1", True), ("[::1]", True), ("0.0.0.0", False), ("localhost", True), ("x", False)]
)
def test_loopback_names(name: str, loopback: bool) -> None:
    assert is_loopback_name(name) == loopback


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/agents/notes/%ff", 400),
        ("/v1/agents/notes/%ff/messages", 400),
        ("/v1/agents/notes/%ff/files/a", 400),
        ("/v1/agents/notes/alice/messages/%fe", 400),
        ("/v2/sessions/%ed%a0%80", 400),
        ("/v1/agents/notes/%EF%BF%BD", 404),
        ("/v1/agents/notes/alice/files/%ff", 404),
        ("/v1/agents/notes/alice/history/a/%ff", 404),
    ],
)
async def test_a_path_is_text_but_for_the_name_of_a_file(path: str, status: int) -> None:
    async with client() as http:
        answer = await http.get(path)
        assert (answer.status_code, code_of(answer)) == (status, "invalid_path" if status == 400 else "unknown_path")


async def test_a_query_is_text() -> None:
    async with client() as http:
        answer = await http.get("/thing?with=notes/%ff")
        assert (answer.status_code, code_of(answer)) == (400, "invalid_parameter")
        assert (await http.get("/thing?with=notes/%C3%A9")).status_code == 200
