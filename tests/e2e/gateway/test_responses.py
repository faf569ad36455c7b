"""Responses of a served home: the example with nothing but httpx, racing writers, and what dies or misbehaves."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest

from coordinator.home import Home
from coordinator.homes.sqlite.calls import SqliteCallLog
from coordinator.models.client import ModelClient
from tests.e2e.conftest import EXAMPLES, HELLO, TIMEOUT_S, Podium, fresh_home, kill_at_once, processes_of
from tests.model_server.answers import Answer
from tests.model_server.replies import Reply, end_at, hold_after, page
from tests.model_server.server import ModelServer
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coordinator.models.calls import CallRecord

pytestmark = [pytest.mark.ray]

RUNTIME = EXAMPLES / "agent_runtime.py"
ALONE = ("httpx", "httpcore", "anyio", "idna", "certifi", "h11", "sniffio", "typing_extensions.py")
"""What httpx 0.28.1 needs, and itself."""
PROJECT = """
agents = ["{hello}"]

[models."code.fast"]
provider = "scripted"

[models.vendor]
provider = "openai"
model = "m"
base_url = "{url}"

[models.narrow]
provider = "openai"
model = "m"
base_url = "{url}"
limits = {{concurrent = 1}}

[models.impatient]
provider = "openai"
model = "m"
base_url = "{url}"
timeout_s = 1

[models.busy]
provider = "scripted"
script = "slow.json"
fallbacks = ["code.fast"]
limits = {{concurrent = 1}}

[models.away]
provider = "openai"
model = "m"
base_url = "http://127.0.0.1:1/v1"

[models.keyless]
provider = "openai"
model = "m"
api_key_env = "PODIUM_TEST_NO_SUCH_KEY"
"""

SLOW = [{"when": "hold", "text": "in a while", "delay_ms": 600_000}, {"text": "at once"}]


@dataclass
class Gateway:
    url: str
    podium: Podium
    vendor: ModelServer
    where: dict[str, str] = field(default_factory=dict)
    """The session and the branch to answer on, if any."""
    outcome: dict[str, Any] | None = None
    """What the last failure says of the quality of service."""

    def calls(self, profile: str) -> list[CallRecord]:
        """Return the records of the calls of a profile."""
        return SqliteCallLog(self.podium.home).latest(None, 1000, profile=profile)

    def ask(self, profile: str, **fields: Any) -> httpx.Response:
        body = {"model": profile, "input": "hi", **self.where, **fields}
        return httpx.post(f"{self.url}/v2/responses", json=body, timeout=TIMEOUT_S)

    def error(self, profile: str, status: int, **fields: Any) -> str:
        """Return the code of the error, whose response is kept as a failure."""
        answer = self.ask(profile, **fields)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        if "response_id" in error:
            kept = httpx.get(f"{self.url}/v2/responses/{error['response_id']}", timeout=TIMEOUT_S).json()
            assert kept["status"] == "failed"
            self.outcome = kept["qos_outcome"]
        code: str = error["code"]
        return code


@dataclass(frozen=True)
class Branch:
    """The default branch of a session."""

    url: str
    session_id: str
    branch_id: str

    @classmethod
    def of(cls, gateway: Gateway) -> Branch:
        made = httpx.post(f"{gateway.url}/v2/sessions", json={}).json()
        return cls(
            f"{gateway.url}/v2/sessions/{made['id']}/branches/{made['default_branch_id']}",
            made["id"],
            made["default_branch_id"],
        )

    @property
    def where(self) -> dict[str, str]:
        return {"session_id": self.session_id, "branch_id": self.branch_id}

    @property
    def version(self) -> int:
        version: int = httpx.get(self.url).json()["version"]
        return version

    def append(self, event_type: str) -> None:
        at = httpx.get(self.url).json()
        position = {"expected_version": at["version"], "expected_head_event_id": at["head_event_id"]}
        event = {"event_type": event_type}
        assert httpx.post(f"{self.url}/events", json={**position, "event": event}).status_code == 201


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    project = tmp_path_factory.mktemp("project") / "podium.toml"
    with ModelServer() as vendor, fresh_home({}) as podium:
        (project.parent / "slow.json").write_text(json.dumps(SLOW))
        project.write_text(PROJECT.format(hello=HELLO, url=vendor.openai_url))
        up = podium("up", "--project", str(project), "--detach", "--no-auth", "--port", "0", "--json")
        try:
            yield Gateway(json.loads(up.stdout)["url"], podium, vendor)
        finally:
            podium("down")


def test_the_runtime_of_the_example_needs_httpx_alone(gateway: Gateway, tmp_path: Path) -> None:
    """S0.3, S0.4, S0.7, S0.8, S0.9, S0.10, S0.20, S0.21, S0.22, S0.23, S0.24, S0.26"""
    assert httpx.__version__ == "0.28.1"
    found = Path(httpx.__file__).parent.parent
    for name in ALONE:
        (tmp_path / name).symlink_to(found / name)
    environment = {"PYTHONPATH": str(tmp_path), "PODIUM_URL": gateway.url, "PODIUM_MODEL": "vendor", "PATH": os.defpath}
    before = len(gateway.vendor.requests)
    command = [sys.executable, "-S", str(RUNTIME), "I am Ann.", "Who am I?"]  # -S: without the packages of the tests
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stderr
    *said, last = ran.stdout.splitlines()
    assert said[0::2] == ["> I am Ann.", "> Who am I?", "> (aside) Say it again."]
    assert said[1::2] == ["I am Ann.", "Who am I?", "Say it again."], "the model repeats what it is told last"
    assert last == "main line: 4 events, aside: 6 events"
    first, second, aside = (
        [message["content"] for message in request.body["messages"]] for request in gateway.vendor.requests[before:]
    )
    assert first == ["I am Ann."]
    assert second == ["I am Ann.", "I am Ann.", "Who am I?"]
    assert aside == [*second, "Who am I?", "Say it again."]


async def test_ten_racing_writers_lose_nothing(gateway: Gateway) -> None:
    """S0.12, S0.14, S0.16"""
    spec = importlib.util.spec_from_file_location("agent_runtime", RUNTIME)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    sys.modules["agent_runtime"] = example
    spec.loader.exec_module(example)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=TIMEOUT_S) as http:
        runtime = example.Runtime(http)
        opened = await runtime.open_session()

        async def writer(number: int) -> str:
            cursor = example.BranchCursor(opened.session_id, opened.branch_id)
            await runtime.refresh(cursor)
            said: str = await runtime.turn(cursor, f"I am writer {number}.")
            return said

        said = await asyncio.gather(*(writer(number) for number in range(10)))
        for number, answer in enumerate(said):
            assert f"I am writer {number}." in answer
        path = f"/v2/sessions/{opened.session_id}/branches/{opened.branch_id}"
        events = (await http.get(f"{path}/events")).json()["items"]
        assert [event["sequence"] for event in events] == list(range(1, 21))
        kinds = [event["event_type"] for event in events]
        assert (kinds.count("user_message"), kinds.count("assistant_message")) == (10, 10)
    del sys.modules["agent_runtime"]


async def test_the_openai_client_answers_on_a_branch(gateway: Gateway) -> None:
    """S0.23, S0.24, S0.26"""
    branch = Branch.of(gateway)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v2", api_key="none", max_retries=0) as client:
        extra = {**branch.where, "qos": {"class": "interactive", "target_ttft_ms": 60_000, "deadline_ms": 60_000}}
        branch.append("user_message")
        whole = await client.responses.create(model="vendor", input="I am Ann.", extra_body=extra)
        branch.append("assistant_message")
        assert (whole.status, whole.output_text) == ("completed", "I am Ann.")
        assert whole.model_extra is not None
        assert whole.model_extra["output_text"] == "I am Ann.", "on the wire, too"
        assert whole.model_extra["qos_outcome"]["degraded"] is False
        branch.append("user_message")
        stream = await client.responses.create(model="vendor", input="Who am I?", stream=True, extra_body=extra)
        events = [event async for event in stream]
        assert "".join(each.delta for each in events if each.type == "response.output_text.delta") == "Who am I?"
        assert events[-1].type == "response.completed"
    sent = [message["content"] for message in gateway.vendor.requests[-1].body["messages"]]
    assert sent == ["I am Ann.", "I am Ann.", "Who am I?"]
    assert branch.version == 3, "responses append nothing"


def test_calls_beyond_the_limit_go_on_by_their_class(gateway: Gateway) -> None:
    """S0.27, S0.28"""
    until = threading.Event()
    gateway.vendor.will(Reply(Answer("one two three"), shape=hold_after(1, until)))
    before = len(gateway.vendor.requests)

    def running() -> int:
        return sum(each.status == "running" for each in gateway.calls("narrow"))

    with ThreadPoolExecutor() as asking:
        try:
            for number, qos_class in enumerate(("standard", "batch", "background", "interactive"), 1):
                asking.submit(gateway.ask, "narrow", input=qos_class, qos={"class": qos_class})
                wait_until(partial(_is, running, number))
            assert len(gateway.vendor.requests) == before + 1, "the others wait"
        finally:
            until.set()
    order = [request.body["messages"][-1]["content"] for request in gateway.vendor.requests[before:]]
    assert order == ["standard", "interactive", "background", "batch"]
    assert {each.status for each in gateway.calls("narrow")} == {"completed"}


def test_vendors_that_misbehave_have_statuses(gateway: Gateway) -> None:
    branch = Branch.of(gateway)
    branch.append("user_message")
    gateway.where = branch.where
    assert gateway.error("nope", 404) == "unknown_profile"
    assert gateway.error("keyless", 502) == "model_auth"
    until = threading.Event()
    with ThreadPoolExecutor() as threads:  # meanwhile: each of these makes several attempts
        away = threads.submit(replace(gateway).error, "away", 503)
        try:
            gateway.vendor.will(*[page()] * 20)
            assert gateway.error("vendor", 502) == "model_protocol"
            gateway.vendor.replies.clear()
            gateway.vendor.will(*[Reply(Answer("half of it"), shape=end_at(150))] * 20)
            assert gateway.error("vendor", 502) == "model_protocol"
            gateway.vendor.replies.clear()
            gateway.vendor.will(*[Reply(Answer("one two three"), shape=hold_after(1, until))] * 20)
            impatient = threads.submit(replace(gateway).error, "impatient", 504)
            assert gateway.error("vendor", 504, qos={"deadline_ms": 500}) == "deadline_exceeded"
            assert gateway.outcome is not None
            assert (gateway.outcome["deadline_met"], gateway.outcome["profile"]) == (False, None)
            assert impatient.result() == "model_timeout"
        finally:
            until.set()
            gateway.vendor.replies.clear()
        assert away.result() == "model_unavailable"
    assert gateway.error("vendor", 504, qos={"deadline_ms": 0}) == "deadline_exceeded"
    assert gateway.error("vendor", 404, branch_id=Branch.of(gateway).branch_id) == "unknown_branch"
    assert gateway.ask("vendor").json()["output_text"]
    gateway.where = {}
    assert branch.version == 1, "nothing was appended"


async def test_the_openai_client_repeats_no_call_in_vain(gateway: Gateway) -> None:
    """S0.28: one call each, though the client repeats 5xx; and one for both requests of a key."""
    until = threading.Event()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v2", api_key="none") as client:
        before = len(gateway.calls("vendor"))
        try:
            gateway.vendor.will(Reply(Answer("one two three"), shape=hold_after(0, until)))
            with pytest.raises(openai.APIStatusError) as late:
                await client.responses.create(model="vendor", input="hi", extra_body={"qos": {"deadline_ms": 500}})
        finally:
            until.set()
            gateway.vendor.replies.clear()
        assert (late.value.status_code, late.value.code) == (504, "deadline_exceeded")
        with pytest.raises(openai.APIStatusError) as keyless:
            await client.responses.create(model="keyless", input="hi")
        assert (keyless.value.status_code, keyless.value.code) == (502, "model_auth")
        key = {"Idempotency-Key": "mine"}
        first = await client.responses.create(model="vendor", input="hi", extra_headers=key)
        again = await client.responses.create(model="vendor", input="hi", extra_headers=key)
        assert again.model_dump() == first.model_dump()
    assert len(gateway.calls("vendor")) == before + 2
    keyless_calls = [call for call in gateway.calls("keyless") if call.owner == keyless.value.body["response_id"]]  # type: ignore[index]
    assert len(keyless_calls) == 1


def test_a_saturated_primary_degrades(gateway: Gateway) -> None:
    """S0.28: the fallback answers, and the outcome says so; without permission the deadline ends it."""
    body = {"model": "busy", "input": "hold", "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v2/responses", json=body, timeout=TIMEOUT_S):

        def degraded() -> Any:
            qos = {"class": "interactive", "target_ttft_ms": 50, "deadline_ms": 60_000}
            answer = gateway.ask("busy", qos=qos).json()
            return answer if answer["qos_outcome"]["degraded"] else None

        answer = wait_until(degraded)
        outcome = answer["qos_outcome"]
        assert "hi" in answer["output_text"]
        assert (outcome["profile"], outcome["class"]) == ("code.fast", "interactive")
        assert outcome["degraded_because"] in {"saturated", "slow"}
        assert outcome["deadline_met"] is True
        forbidden = {"degrade_policy": "forbid", "deadline_ms": 500}
        assert gateway.error("busy", 504, qos=forbidden) == "deadline_exceeded"
        assert gateway.outcome is not None
        assert (gateway.outcome["deadline_met"], gateway.outcome["degraded"]) == (False, False)


@pytest.mark.parametrize("victim", ["model gateway", "service"])
def test_a_stream_has_a_last_event_when_what_makes_it_is_killed(gateway: Gateway, victim: str) -> None:
    until = threading.Event()
    gateway.vendor.will(Reply(Answer("one two three"), shape=hold_after(2, until)))
    body = {"model": "vendor", "input": "hi", "stream": True}
    names, killed = [], False
    try:
        with httpx.stream("POST", f"{gateway.url}/v2/responses", json=body, timeout=TIMEOUT_S) as stream:
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    names.append(line.removeprefix("event: "))
                if not killed and names[-1:] == ["response.output_text.delta"]:
                    _kill(gateway, victim)
                    killed = True
                if line.startswith("data: {"):
                    last = json.loads(line.removeprefix("data: "))
    finally:
        until.set()
        gateway.vendor.replies.clear()
    assert names[-1] == "response.failed"
    assert last["response"]["error"]["code"] == "unavailable"
    kept = httpx.get(f"{gateway.url}/v2/responses/{last['response']['id']}", timeout=TIMEOUT_S).json()
    assert (kept["status"], kept["output_text"]) == ("failed", last["response"]["output_text"])
    wait_until(lambda: gateway.ask("vendor").status_code == 200, "what was killed is not started again")
    (call,) = (each for each in gateway.calls("vendor") if each.owner == kept["id"])
    assert (call.cost, call.output_tokens) == (None, None), "the call in flight, once"
    assert call.status in {"lost", "cancelled", "failed"}


def _is(found: Callable[[], int], expected: int) -> bool:
    return found() == expected


def _kill(gateway: Gateway, victim: str) -> None:
    if victim == "service":
        kill_at_once(processes_of(gateway.podium, "coordinator.service.daemon"))
    else:
        client = ModelClient(Home(gateway.podium.home).open().models_socket)
        os.kill(asyncio.run(client.process_id()), signal.SIGKILL)
