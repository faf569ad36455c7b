"""Templates of requests against a real server: whatever an argument is, the server sees exactly that (S2.46)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.tools.files.http_tool import HttpTool
from podium.tools.files.request_template import HeaderTemplate, UrlTemplate, body_template
from podium.tools.files.schema_arguments import SchemaArguments
from podium.tools.files.template import TemplateError, read_template
from podium.tools.tool_spec import BadArguments

TEXTS = st.one_of(
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=30),
    st.text(st.sampled_from("/\\?#&=%+:@;\"'{}[],. \n\r\t\0aé"), max_size=20),
    st.sampled_from(
        [
            "../admin",
            "..",
            "a/../b",
            "@evil.example",
            "//evil.example",
            '","admin":true,"x":"',
            "\r\nX-Evil: 1",
            "${args.a}",
        ]
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


class _Server(ThreadingHTTPServer):
    seen: list[dict[str, Any]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        server: Any = self.server
        server.seen.append({"path": self.path, "headers": self.headers.items(), "body": body})
        answer = b'{"done": true}' if "missing" not in self.path else b"no such thing"
        self.send_response(200 if "missing" not in self.path else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Handler) as running:
        running.seen = []
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def _tool(
    server: _Server,
    url: str,
    headers: dict[str, str] | None = None,
    body: str | None = None,
    kind: str = "application/json",
) -> HttpTool:
    def read(text: str) -> Any:
        return read_template(text, ("a", "b"), {"BASE": f"http://127.0.0.1:{server.server_port}"})

    made = [HeaderTemplate(name, read(text)) for name, text in (headers or {}).items()]
    template = body_template(kind, read(body)) if body is not None else None
    return HttpTool(SchemaArguments({"type": "object"}), "POST", UrlTemplate(read("${env.BASE}" + url)), made, template)


def _sent(server: _Server, tool: HttpTool, **values: Any) -> dict[str, Any]:
    server.seen.clear()
    asyncio.run(_call(tool, values))
    (request,) = server.seen
    return request


async def _call(tool: HttpTool, values: dict[str, Any]) -> Any:
    return await tool.call(tool.bind(values), None)


@settings(max_examples=20, deadline=None)
@given(a=TEXTS, b=TEXTS)
def test_s2_46_the_server_sees_the_argument_in_one_segment_and_one_parameter(server: _Server, a: str, b: str) -> None:
    tool = _tool(server, "/files/x${args.a}/end?q=${args.b}&r=1")
    try:
        tool.bind({"a": a, "b": b})
    except BadArguments:
        assert not {".", ".."}.isdisjoint(f"x{a}".replace("\\", "/").split("/"))
        return
    path, _, query = _sent(server, tool, a=a, b=b)["path"].partition("?")
    assert [unquote(part) for part in path.split("/")] == ["", "files", f"x{a}", "end"]
    assert parse_qs(query, keep_blank_values=True) == {"q": [b], "r": ["1"]}


@pytest.mark.parametrize("value", ["", ".", "..", "../../admin", "a/../b", "a\\..\\b", "a/.", "..\\admin"])
def test_a_segment_that_leads_elsewhere_is_refused(server: _Server, value: str) -> None:
    with pytest.raises(BadArguments, match="cannot be a part of the path"):
        _tool(server, "/files/${args.a}/end").bind({"a": value})


def test_a_value_does_not_complete_a_segment_that_leads_elsewhere(server: _Server) -> None:
    with pytest.raises(BadArguments, match="cannot be a part of the path"):
        _tool(server, "/files/${args.a}../end").bind({"a": "x/"})
    _tool(server, "/files/a..b?q=${args.a}").bind({"a": "../../admin"})


@settings(max_examples=20, deadline=None)
@given(value=TEXTS)
def test_s2_46_an_argument_is_one_line_of_a_header_or_refused(server: _Server, value: str) -> None:
    tool = _tool(server, "/", {"X-Note": "note ${args.a}.", "X-Other": "b"})
    try:
        tool.bind({"a": value})
    except BadArguments:
        assert any(ord(char) < 32 or ord(char) == 127 for char in value)
        return
    headers = dict(_sent(server, tool, a=value)["headers"])
    assert headers["X-Note"].encode("latin-1").decode() == f"note {value}."
    assert "X-Evil" not in headers


@settings(max_examples=20, deadline=None)
@given(a=TEXTS, b=JSON)
def test_s2_46_an_argument_is_a_value_of_a_json_body(server: _Server, a: str, b: Any) -> None:
    tool = _tool(server, "/", body='{"text": "Say \\"${args.a}\\"", "list": [${args.b}, "${args.a}"], "n": 1}')
    assert json.loads(_sent(server, tool, a=a, b=b)["body"]) == {"text": f'Say "{a}"', "list": [b, a], "n": 1}


@settings(max_examples=20, deadline=None)
@given(a=TEXTS)
def test_an_argument_is_a_value_of_a_form_and_of_plain_text(server: _Server, a: str) -> None:
    form = _tool(server, "/", body="a=${args.a}&b=1", kind="application/x-www-form-urlencoded")
    assert parse_qs(_sent(server, form, a=a)["body"].decode(), keep_blank_values=True) == {"a": [a], "b": ["1"]}
    text = _tool(server, "/", body="${args.a}", kind="text/plain")
    assert _sent(server, text, a=a)["body"].decode() == a


def test_the_answer_is_json_or_an_error_with_its_text(server: _Server) -> None:
    assert asyncio.run(_call(_tool(server, "/ok"), {})) == {"done": True}
    with pytest.raises(Exception, match="HTTP 404: no such thing"):
        asyncio.run(_call(_tool(server, "/missing"), {}))


@pytest.mark.parametrize(
    "url",
    [
        "${args.a}",
        "http://${args.a}/",
        "http://x${args.a}",
        "http://x.org:8${args.a}/",
        "ftp://x/${args.a}",
        "http://x/#${args.a}",
        "http://x.org\\${args.a}",
        "http://x.org\\@y/${args.a}",
        "http://x.org ${args.a}",
        "/x",
    ],
)
def test_an_argument_cannot_be_where_a_request_goes(url: str) -> None:
    with pytest.raises(TemplateError):
        UrlTemplate(read_template(url, ("a",), {}))


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection"])
def test_an_argument_cannot_be_in_a_header_that_frames_the_request(name: str) -> None:
    with pytest.raises(TemplateError):
        HeaderTemplate(name, read_template("x${args.a}", ("a",), {}))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", '{"${args.a}": 1}'),
        ("application/json", '{"a": ${args.a}'),
        ("application/json", '{"a": x${args.a}}'),
        ("application/json", '{"a": "\\${args.a}"}'),
        ("text/xml", "<a>${args.a}</a>"),
    ],
)
def test_an_argument_cannot_be_in_the_structure_of_a_body(kind: str, body: str) -> None:
    with pytest.raises(TemplateError):
        body_template(kind, read_template(body, ("a",), {}))
