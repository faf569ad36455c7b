"""A real gateway over a home with real Ray answers as its OpenAPI document says, whatever it is sent.

schemathesis makes requests from the document, fitting and not, with all of its checks: no status of the server's own
failure, none that is not documented, no body or header that does not fit its schema.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.conftest import TIMEOUT_S, fresh_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.ray]

MAX_S = 240
"""For a run of few cases, which takes an eighth of that."""
AGENT = """
from typing import Any
from pydantic import BaseModel
from podium import handler
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class Question(BaseModel):
    pass


class Notes(BaseAgent):
    agent_type = "notes"

    class State(DeltaState):
        _entity_type = "notes"
        _version = 1
        count: int = 0

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        (ctx.workspace / "notes.txt").write_text(f"{ctx.state.count}")
        if ctx.state.count == 1:
            await ctx.add_artifact("first.txt", "one")
        ctx.reply({"count": ctx.state.count})
        await ctx.send_message(str(ctx.state.count))

    @handler(read_only=True)
    async def total(self, ctx: AgentContext[State], question: Question) -> int:
        return ctx.state.count
"""

HOOKS = '''
"""What the document cannot say of requests that fit it: which keys and cursors there are, and what an archive is.

A run of few cases sends one of each kind that the schemas of an operation give: for each field one value that is too
long, one of a wrong type, one at each limit, and so on. The others, such as those of more wrong types, are sent at
night.
"""

from pathlib import Path

import schemathesis
from hypothesis import strategies
from schemathesis.core import NOT_SET

KEYS = ("a", "b", "nobody")
FEW = Path("few").exists()
kinds = set()

schemathesis.openapi.media_type("application/zip", strategies.just(Path("agent.podium").read_bytes()))
schemathesis.openapi.media_type("application/vnd.podium.code", strategies.binary(max_size=100))


def _number(value):
    return sum(map(ord, str(value)))


@schemathesis.hook
def filter_case(context, case):
    """Leave out further cases of a kind, in a run of few."""
    if not FEW or case.meta.phase.name.value != "coverage":
        return True
    data = case.meta.phase.data
    what = data.description if case.meta.generation.mode.is_positive else data.location
    kind = (case.operation.label, data.scenario, data.parameter_location, data.parameter, what)
    if kind in kinds:
        return False
    kinds.add(kind)
    return True


@schemathesis.hook
def filter_query(context, query):
    """Leave out values for lists of texts that are none: in a URL, each of them is a list of one text."""
    if not (context.operation and context.operation.path.endswith("/events") and query and "type" in query):
        return True
    return isinstance(query["type"], list) and all(isinstance(item, str) for item in query["type"])


@schemathesis.hook
def before_call(context, case, **kwargs):
    """Of requests that are to be accepted: name agents that there are, mostly, and give no cursors.

    A list gives cursors out, and refuses others. What is no key is left to the unit tests. The only node is not
    drained: the messages of other cases would be refused. A method that a route does not have comes without the body of
    another: a POST of what is not JSON is refused for its type on every route.
    """
    if case.method.upper() != context.operation.method.upper():
        case.body, case.media_type = NOT_SET, None
    if not case.meta.generation.mode.is_positive:
        return
    if case.query:
        case.query.pop("cursor", None)
        if case.query.get("with"):
            case.query["with"] = "notes/" + KEYS[_number(case.query["with"]) % len(KEYS)]
    found = case.path_parameters or {}
    if context.operation.path.endswith("/read") and isinstance(case.body, dict):
        case.body["message"] = {"handler": "total", "input": {}}
    if context.operation.path.endswith("/drain"):
        found["node"] = "nowhere"
    if "key" in found:
        found["key"] = KEYS[_number(found["key"]) % len(KEYS)]
        if "type" in found and _number(found["type"]) % 4:
            found["type"] = "notes"
    if "path" in found and _number(found["path"]) % 2:
        found["path"] = "notes.txt"
    if isinstance(case.body, dict) and isinstance(case.body.get("messages"), list):
        text = {"type": "text", "text": "hello"}
        message = {"id": "m-" + str(_number(case.body) % 50), "role": "user", "parts": [text], "content": "hello"}
        case.body["messages"][-1:] = [message]
        case.body.pop("resume", None)
        case.body.pop("cancel_on_disconnect", None)
        for name in ("id", "threadId"):
            if name in case.body:
                case.body[name] = KEYS[_number(case.body[name]) % len(KEYS)]
    if isinstance(case.body, dict) and isinstance(case.body.get("key"), str):
        case.body["key"] = "fork-" + str(_number(case.body["key"]) % 50)
    if context.operation.path == "/v2/responses" and isinstance(case.body, dict):
        _make_answerable(case.body)
    if context.operation.path.startswith("/v2/") and isinstance(case.body, dict):
        _make_consistent(case.body)


def _make_answerable(body):
    """Name the profile, mostly; say something; give no block of a provider, as an answer alone has them."""
    if _number(body.get("model")) % 4:
        body["model"] = "echo"
    if body.get("qos"):
        body["qos"].pop("deadline_ms", None)
    if not isinstance(body["input"], str):
        body["input"] = [item for item in body["input"] if item.get("type") != "reasoning"]
        body["input"].append({"role": "user", "content": "x"})


def _make_consistent(body):
    """Make fields fit each other: content and its encoding, a class and its session, one payload, one text."""
    if "content" in body:
        for name in ("content_encoding", "session_id", "retention_class"):
            body.pop(name, None)
    for item in body.get("items", ()):
        item.pop("artifact_id", None)
        item["text"] = str(item.get("text"))
    event = body.get("event")
    if isinstance(event, dict) and event.get("payload") is not None:
        event.pop("payload_ref", None)
'''

CONFIG = """
hooks = "hooks.py"

[checks]
# An agent that does not exist, or a turn; a message for an agent whose condition does not permit it.
# Without keys, 403 is the answer to a change of an agent's session only.
positive_data_acceptance.expected-statuses = ["2xx", 304, 206, 403, 404, 409, 416]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with two agents."""
    project = tmp_path_factory.mktemp("project")
    (project / "notes_agent.py").write_text(AGENT)
    (project / "podium.toml").write_text('agents = ["notes_agent.py:Notes"]\n[models.echo]\nprovider = "scripted"\n')
    with fresh_home({}) as podium:
        up = podium("up", "--project", str(project / "podium.toml"), "--detach", "--no-auth", "--port", "0", "--json")
        url: str = json.loads(up.stdout)["url"]
        try:
            for key in ("a", "b"):
                message = {"message": {"text": "hello"}}
                sent = httpx.post(f"{url}/v1/agents/notes/{key}/messages", json=message, timeout=TIMEOUT_S)
                assert sent.json()["text"] == "1", sent.text
            yield url
        finally:
            podium("down")


def test_an_upload_and_a_rewind_of_an_agent_that_is_awake(served: str) -> None:
    agent = f"{served}/v1/agents/notes/awake"
    with httpx.Client(timeout=TIMEOUT_S) as http:

        def send() -> None:
            sent = http.post(f"{agent}/messages", json={"message": {"text": "hello"}})
            assert sent.status_code == 200, sent.text

        send()
        assert http.get(agent).json()["status"] == "awake"
        uploaded = http.put(f"{agent}/files/in/data.csv", content=b"1,2\n").json()
        assert (uploaded["turn"], uploaded["iteration"]) == (2, 1)
        send()
        assert http.get(f"{agent}/files/in/data.csv?turn=3").text == "1,2\n"
        assert http.get(f"{agent}/files/notes.txt").text == "2"
        rewound = http.post(f"{agent}/rewind", json={"turn": 1}).json()
        assert (rewound["from"], rewound["turn"]) == (3, 4)
        assert http.get(f"{agent}/files/in/data.csv").status_code == 404
        assert http.get(f"{agent}/state").json()["state"] == {"count": 1}
        send()
        assert http.get(f"{agent}/files/notes.txt").text == "2"
        said = http.get(f"{agent}/events", params={"type": "user_message"}).json()["items"]
        assert [event["visible"] for event in said] == [True, False, True]
        assert http.post(f"{agent}/verify", json={}).json()["ok"]


def test_a_body_that_is_cut_off_commits_nothing(served: str) -> None:
    parts = urlsplit(served)
    assert parts.hostname is not None
    before = httpx.get(f"{served}/v1/agents/notes/b").json()
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=TIMEOUT_S) as connection:
        connection.sendall(
            b"PUT /v1/agents/notes/b/files/cut HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nbegun"
        )
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=TIMEOUT_S) as connection:
        connection.sendall(
            b"POST /v1/agents/notes/b/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b'Content-Length: 1000\r\n\r\n{"message":'
        )
    assert httpx.get(f"{served}/v1/agents/notes/b/files/cut").status_code == 404
    after = httpx.get(f"{served}/v1/agents/notes/b").json()
    of_its_process = dict.fromkeys(("status", "isolation", "sandbox", "memory"))
    assert {**after, **of_its_process} == {**before, **of_its_process}


def check_answers(url: str, directory: Path, examples: int, limit_s: int | None = None) -> None:
    """Have schemathesis make the cases of each operation, and random ones, accepted and refused.

    Args:
        examples: random cases of each operation.
        limit_s: for a run of all cases, which then makes random ones until this time is over. By default one case of
            each kind is sent, and the run ends with the last one.
    """
    if limit_s is None:
        (directory / "few").touch()
    (directory / "hooks.py").write_text(HOOKS)
    (directory / "schemathesis.toml").write_text(CONFIG)
    archive = httpx.get(f"{url}/v1/agents/notes/a/archive", timeout=TIMEOUT_S).content
    (directory / "agent.podium").write_bytes(archive)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"]
    options = ["--checks", "all", "--phases", "coverage,fuzzing", "--continue-on-failure", "--request-timeout", "60"]
    options += ["--max-examples", str(examples), "--warnings", "off"]
    run = subprocess.run(
        [*command, *options, *([] if limit_s is None else ["--max-time", str(limit_s)])],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=(limit_s or MAX_S) + TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout


def test_a_gateway_answers_as_its_document_says(served: str, tmp_path: Path) -> None:
    """Each of 75 operations: 1,800 of 2,500 cases and 140 random ones, in half the CPU time that all of them and random
    ones until a limit of time took. It finds the same three of four planted faults: an undocumented status at one value
    of a query, a 500 for the longest list and for a reference without a payload; and not one at the limit of a number.
    """
    check_answers(served, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_gateway_answers_as_its_document_says_at_length(served: str, tmp_path: Path) -> None:
    check_answers(served, tmp_path, 50, 900)
