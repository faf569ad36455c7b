"""The JSON policy: readers of one text agree, wherever they are, on whether it is admitted and on what it says.

A planted difference of one reader (Python's json or orjson alone at the gateway, no limits at the service)
is found within 100 texts.
"""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chronicle.canonical import MAX_DIGITS, MAX_INPUT_DEPTH, decode, decode_input, encode
from chronicle.errors import InvalidInput
from coordinator.channel import from_json, id_of, to_json
from coordinator.client.backends.connection import Connection
from coordinator.gateway.bodies import MessageBody
from coordinator.gateway.errors import add_handlers
from coordinator.gateway.routers import router_at
from coordinator.models.wire import object_of
from coordinator.service.requests import message_in, parse_request
from podium.models.json_fields import tool_call
from podium.state.plain_json import plain_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

URL = "http://gateway.test"


class Gateway:
    """The gateway's reader of bodies, in an application that has one route."""

    def __init__(self) -> None:
        self.read: list[dict[str, Any]] = []
        app, router = FastAPI(), router_at("", "")

        @router.post("/")
        async def take(body: MessageBody) -> None:
            self.read.append(body.message)

        add_handlers(app)
        app.router.routes.extend(router.routes)
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL)

    async def message(self, text: bytes) -> dict[str, Any] | None:
        """Return the message of a body; ``None`` if the body is refused."""
        answer = await self._http.post("/", content=text, headers={"Content-Type": "application/json"})
        if answer.status_code == httpx.codes.OK:
            return self.read.pop()
        assert answer.status_code == httpx.codes.BAD_REQUEST, answer.text
        assert answer.json()["error"]["code"] == "invalid_json", answer.text
        return None


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def gateway() -> Gateway:
    return Gateway()


# -- an independent, slow reader ------------------------------------------------------------------------------------


def slowly(text: bytes, levels: int) -> tuple[bool, Any]:
    """Return whether a text is admitted with so many levels, and its value."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("two members of one name")
        return found

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise ValueError(digits)
        return value

    def integer(digits: str) -> int:
        if len(digits.removeprefix("-")) > MAX_DIGITS:  # Python's own limit is lifted by the command line
            raise ValueError("too many digits")
        return int(digits)

    try:
        value = json.loads(
            text.decode(), object_pairs_hook=members, parse_int=integer, parse_float=number, parse_constant=number
        )
        json.dumps(value, ensure_ascii=False).encode()  # refuses lone surrogates
        return depth_of(value) <= levels, value
    except (ValueError, RecursionError):
        return False, None


def depth_of(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)
    return 0


def same(one: Any, other: Any) -> bool:
    """Whether values are equal, their types and the order of their members included."""
    return repr(one) == repr(other)


# -- texts ----------------------------------------------------------------------------------------------------------

digits = st.sampled_from([1, 17, 18, 19, 20, 40, 640, MAX_DIGITS - 1, MAX_DIGITS, MAX_DIGITS + 1, 5000])
numbers = st.one_of(
    st.sampled_from(
        [
            "0",
            "-0",
            "-0.0",
            "1e5",
            "1E-999",
            "1e308",
            "1e309",
            "-1e999",
            "NaN",
            "Infinity",
            "-Infinity",
            "01",
            "1.",
            "+1",
        ]
    ),
    st.builds(lambda sign, count, end: sign + "9" * count + end, st.sampled_from(["", "-"]), digits, st.just("")),
    st.builds(lambda count, end: "1" * count + end, digits, st.sampled_from([".5", "e2", "e999", "E-9"])),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
)
PIECES = (
    *("a", "é", "\U0001f600", "\\u00e9", '\\"', "\\\\", '\\":', "\\u0022:", ":", "[", "{", "1" * 20, "9" * 5000),
    *("\\ud800", "\\udc00", "\\ud83d\\ude00", "\\u0000", "\\n", "\\x", "\x7f", "\t", "\u2028"),
)
strings = st.lists(st.sampled_from(PIECES), max_size=4).map(lambda parts: '"' + "".join(parts) + '"')
blanks = st.sampled_from(["", " ", "\n"])
scalars = st.one_of(st.sampled_from(["null", "true", "false", "[]", "{}", "nul"]), numbers, strings)


def array(items: list[str], blank: str) -> str:
    return "[" + f"{blank},".join(items) + blank + "]"


def members(pairs: list[tuple[str, str]], blank: str) -> str:
    return "{" + ",".join(f"{name}{blank}:{value}" for name, value in pairs) + "}"


names = st.one_of(st.sampled_from(['"a"', '"\\u0061"', '"b"']), strings)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(array, st.lists(inner, max_size=3), blanks),
        st.builds(members, st.lists(st.tuples(names, inner), max_size=3), blanks),
    ),
    max_leaves=6,
)
levels = st.sampled_from(
    [0, 0, 0, 0, 90, 97, 98, 99, 100, 101, 198, 199, 200, 201, 253, 254, 255, 1022, 1023, 1100, 5000]
)
nesting = st.sampled_from([("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])


def nested(value: str, count: int, around: tuple[str, str]) -> str:
    count //= len(around[1])
    return around[0] * count + value + around[1] * count


def damaged(text: str, at: int, change: str) -> bytes:
    """Return a text in UTF-8 with one of its bytes changed, removed or doubled."""
    data = text.encode()
    at %= len(data)
    match change:
        case "cut":
            return data[:at]
        case "drop":
            return data[:at] + data[at + 1 :]
        case "double":
            return data[: at + 1] + data[at:]
        case "break":
            return data[:at] + b"\xff" + data[at + 1 :]
    return data


texts = st.builds(
    damaged,
    st.builds(lambda name, value: f"{{{name}:{value}}}", st.just('"n"'), st.builds(nested, values, levels, nesting)),
    st.integers(0, 10_000),
    st.sampled_from(["", "", "", "", "cut", "drop", "double", "break"]),
)


# -- all readers ----------------------------------------------------------------------------------------------------


def in_service(text: bytes) -> bytes:
    request = parse_request(b'{"id":7,"op":"admit","agent":"hello/a","message":' + text + b"}\n")
    return message_in(request).body


def in_frame(text: bytes) -> Any:
    return from_json(b'{"id":7,"frames":[{"type":"event","data":' + text + b"}]}")["frames"][0]["data"]


def in_client(text: bytes) -> Any:
    return decode(b'{"items":[{"message":' + text + b"}]}")["items"][0]["message"]  # type: ignore[call-overload,index]


def in_models(text: bytes) -> Any:
    return object_of(b'{"op":"call","request":{"messages":' + text + b"}}")["request"]["messages"]  # type: ignore[call-overload,index]


INNER: dict[str, Callable[[bytes], Any]] = {
    "host": in_frame,
    "client": in_client,
    "models": in_models,
    "journal": lambda text: decode(b'{"body":{"message":' + text + b"}}")["body"]["message"],  # type: ignore[call-overload,index]
}
WRITTEN: dict[str, Callable[[Any], Any]] = {
    "journal": lambda value: decode(encode({"patch": [{"value": {"message": value}}]}))["patch"][0]["value"]["message"],  # type: ignore[call-overload,index]
    "frames": lambda value: from_json(to_json({"id": 7, "frames": [{"data": value}]}))["frames"][0]["data"],
    "models": lambda value: object_of(to_json({"chunk": {"call": {"arguments": value}}}))["chunk"]["call"]["arguments"],  # type: ignore[call-overload,index]
    "state": plain_json,
    "client": lambda value: decode_input(encode(value)),
}
"""What one process has read is written for another one."""


@settings(max_examples=settings().max_examples * 3)
@given(texts)
@example(b'{"n":' + b"[" * 199 + b"]" * 199 + b"}")
@example(b'{"n":' + b"9" * 5000 + b"}")
@example(b'{"n":-' + b"9" * MAX_DIGITS + b"}")
@example(b'{"n":{"a":1,"a":"x\\u0022:"}}')
@example(b'{"n":12345678901234567890}')
def test_readers_agree(gateway: Gateway, runner: asyncio.Runner, text: bytes) -> None:
    admitted, value = slowly(text, MAX_INPUT_DEPTH - 1)  # it is in a body
    read = runner.run(gateway.message(b'{"message":' + text + b"}"))
    assert (read is not None) == admitted
    if admitted:
        assert same(read, value)
        assert same(decode_input(text), value)
        assert same(tool_call("c", "f", text.decode()).arguments, value)
        for name, reader in INNER.items():
            assert same(reader(text), value), name
        assert in_service(text) == encode(value)
        for name, again in WRITTEN.items():
            assert encode(again(value)) == encode(value), name
        return
    for reader in INNER.values():
        with suppress(InvalidInput):  # and no other exception
            reader(text)
    with suppress(InvalidInput):  # no process writes members of one name, so nobody looks for them here
        assert slowly(in_service(text), MAX_INPUT_DEPTH)[0]
    assert id_of(b'{"id":7,"message":' + text) == 7


async def test_answers_of_a_server_are_read_by_the_client() -> None:
    connection = Connection(URL, lambda: "")
    request = httpx.Request("GET", URL)
    data = b'{"items":[{"n":' + b"9" * MAX_DIGITS + b"}]}"
    assert await connection.value(httpx.Response(200, content=data, request=request)) == decode(data)
    await connection.close()
