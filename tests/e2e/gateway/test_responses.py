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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from coordinator.home import Home
from coordinator.models.client import ModelClient
from tests.e2e.conftest import EXAMPLES, HELLO, TIMEOUT_S, Podium, fresh_home, kill_at_once, processes_of
from tests.model_server.answers import Answer
from tests.model_server.replies import Reply, end_at, hold_after, page
from tests.model_server.server import ModelServer
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    def ask(self, profile: str, **fields: Any) -> httpx.Response:
        body = {"model": profile, "input": "hi", **fields}
        return httpx.post(f"{self.url}/v2/responses", json=body, timeout=TIMEOUT_S)

    def error(self, profile: str, status: int, **fields: Any) -> str:
        """Return the code of the error, whose response is kept as a failure."""
        answer = self.ask(profile, **fields)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        if "response_id" in error:
            kept = httpx.get(f"{self.url}/v2/responses/{error['response_id']}", timeout=TIMEOUT_S).json()
            assert kept["status"] == "failed"
        code: str = error["code"]
        return code


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
    """S0.3, S0.4-S0.30"""
    assert httpx.__version__ == "0.28.1"
    found = Path(httpx.__file__).parent.parent
    for name in ALONE:
        (tmp_path / name).symlink_to(found / name)
    environment = {"PYTHONPATH": str(tmp_path), "PODIUM_URL": gateway.url, "PATH": os.defpath}
    command = [sys.executable, "-S", str(RUNTIME), "I am Ann.", "Who am I?"]  # -S: without the packages of the tests
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stderr
    *said, last = ran.stdout.splitlines()
    assert said[0::2] == ["> I am Ann.", "> Who am I?", "> (aside) Say it again."]
    assert all("I am Ann." in said[1] or said[1] for _ in said)
    assert last == "main line: 4 events, aside: 6 events"


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


def test_vendors_that_misbehave_have_statuses(gateway: Gateway) -> None:
    assert gateway.error("nope", 404) == "unknown_profile"
    assert gateway.error("away", 503) == "model_unavailable"
    assert gateway.error("keyless", 502) == "model_auth"
    gateway.vendor.will(*[page()] * 20)
    assert gateway.error("vendor", 502) == "model_protocol"
    gateway.vendor.replies.clear()
    gateway.vendor.will(*[Reply(Answer("half of it"), shape=end_at(150))] * 20)
    assert gateway.error("vendor", 502) == "model_protocol"
    gateway.vendor.replies.clear()
    until = threading.Event()
    try:
        gateway.vendor.will(*[Reply(Answer("one two three"), shape=hold_after(1, until))] * 20)
        assert gateway.error("vendor", 504, qos={"deadline_ms": 500}) == "deadline_exceeded"
    finally:
        until.set()
        gateway.vendor.replies.clear()
    assert gateway.ask("vendor").json()["output_text"]


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


def _kill(gateway: Gateway, victim: str) -> None:
    if victim == "service":
        kill_at_once(processes_of(gateway.podium, "coordinator.service.daemon"))
    else:
        client = ModelClient(Home(gateway.podium.home).open().models_socket)
        os.kill(asyncio.run(client.process_id()), signal.SIGKILL)
