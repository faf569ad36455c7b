"""Gateways and commands of other directories of a home, as on other machines: they reach its service over TCP."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from coordinator.cli.exits import ExitCode
from tests.certificates import write_certificate
from tests.e2e.conftest import COMMANDS, HELLO, TIMEOUT_S, Podium, command, fresh_home
from tests.e2e.servers import servers
from tests.s3_server import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Place:
    """A directory of the home, with a gateway."""

    podium: Podium
    url: str
    pid: int


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    """The directory with the service, and another one that joined."""
    directory = tmp_path_factory.mktemp("places")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    write_certificate(certificate, key)
    project = directory / "podium.toml"
    project.write_text(f"agents = [{HELLO!r}]\n[models.echo]\nprovider = 'scripted'\nmodel = 'echo'\n")
    with contextlib.ExitStack() as stack:
        settings = stack.enter_context(servers(directory)).settings
        tls = {"PODIUM_SERVICE_TLS_CERT": str(certificate), "PODIUM_SERVICE_TLS_KEY": str(key)}
        first = stack.enter_context(fresh_home({**settings, **tls, "PODIUM_SERVICE_LISTEN": "127.0.0.1:0"}))
        workspaces = directory / "w"  # of one machine
        workspaces.mkdir(mode=0o700)
        second = stack.enter_context(fresh_home({**settings, "PODIUM_WORKSPACES": str(workspaces)}))
        refused = second("up", "--join", "--project", str(project), "--port", "0", check=False)
        assert refused.returncode == ExitCode.UNAVAILABLE, refused.stderr
        assert "no service runs on the home" in refused.stderr
        waiting = stack.enter_context(gateway_that_waits(second, project))
        up = first.json("up", "--project", str(project), "--detach", "--port", "0")
        stack.callback(first, "down", check=False)
        wait_until(lambda: probe(waiting) == 200, "the gateway does not serve when the service is there")
        yield Place(first, up["url"], up["pid"]), waiting


@contextlib.contextmanager
def gateway_that_waits(podium: Podium, project: Path) -> Iterator[Place]:
    """A gateway that has joined a home which has no service yet, in the foreground."""
    port = free_port()
    begin = ["up", "--join", "--project", str(project), "--port", str(port), "--home", str(podium.home)]
    environment = {**podium.environment, "PODIUM_START_WAIT_S": "600"}
    with subprocess.Popen([*command(), *begin], env=environment, stdin=subprocess.DEVNULL) as process:
        place = Place(podium, f"http://127.0.0.1:{port}", process.pid)
        try:
            wait_until(lambda: probe(place) == 503, "the gateway does not wait")
            yield place
        finally:
            process.terminate()


def probe(place: Place) -> int:
    """What ``/readyz`` answers; 0 for nothing."""
    try:
        return httpx.get(f"{place.url}/readyz", timeout=60).status_code
    except httpx.TransportError:
        return 0


@contextlib.contextmanager
def calling(place: Place) -> Iterator[httpx.Client]:
    """A client of a gateway, with the key of its directory."""
    key = (place.podium.home / "local.key").read_text().strip()
    with httpx.Client(base_url=place.url, headers={"authorization": f"Bearer {key}"}, timeout=60) as client:
        yield client


def send(place: Place, agent: str, text: str, **headers: str) -> dict[str, Any]:
    """Send a message and return the answer."""
    with calling(place) as client:
        answer = client.post(f"/v1/agents/{agent}/messages", json={"message": {"text": text}}, headers=headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def test_any_gateway_takes_messages_for_any_agent(places: tuple[Place, Place]) -> None:
    first, second = places
    one, two = send(first, "hello/ann", "one"), send(second, "hello/ann", "two")
    assert (one["turn"], two["turn"]) == (1, 2)
    assert send(second, "hello/bea", "one")["turn"] == 1
    with calling(first) as client:
        assert client.get("/v1/agents/hello/bea").json()["turn"] == 1


def test_a_repetition_at_another_gateway_gets_the_first_answer(places: tuple[Place, Place]) -> None:
    first, second = places
    key = {"idempotency-key": "once"}
    one, two = send(second, "hello/cas", "hi", **key), send(first, "hello/cas", "hi", **key)
    assert one["message_id"] == two["message_id"]
    assert one["turn"] == two["turn"] == 1


def test_commands_of_another_directory_use_the_service(places: tuple[Place, Place]) -> None:
    _, second = places
    said = second.podium("run", HELLO, "--key", "dan", "--message", "hi", "--json")
    assert json.loads(said.stdout.splitlines()[-1])["type"] == "turn_end"
    assert second.podium.row("hello/dan")["status"] == "awake"
    assert second.podium("passivate", "hello/dan").returncode == 0
    assert second.podium.row("hello/dan")["status"] == "asleep"


def test_the_doctor_finds_service_and_gateways(places: tuple[Place, Place]) -> None:
    _, second = places
    only = ["doctor", "--only", "service", "--only", "gateway"]
    here = second.podium(*only)
    assert "the service runs, of this version of podium as its nodes: 1 ready" in here.stdout
    assert f"{second.url} is ready" in here.stdout
    key = (second.podium.home / "local.key").read_text().strip()
    assert "takes the key" in examined(second, key, ExitCode.OK)
    assert "failed   gateway" in examined(second, "pk_none", ExitCode.UNFIT)


def examined(place: Place, key: str, code: ExitCode) -> str:
    """What `podium doctor` says of a gateway with a key."""
    environment = {**place.podium.environment, "PODIUM_HOME": str(place.podium.home)}
    asked = ["doctor", "--only", "gateway", "--url", place.url, "--key", key]
    done = COMMANDS.run(asked, environment, TIMEOUT_S)
    assert done.returncode == code, done.stdout + done.stderr
    return str(done.stdout)


def test_the_models_of_the_service_answer_there(places: tuple[Place, Place]) -> None:
    with calling(places[1]) as client:
        answer = client.post("/v2/responses", json={"model": "echo", "input": "hello"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["status"] == "completed"


def test_a_stream_is_resumed_at_another_gateway(places: tuple[Place, Place]) -> None:
    first, second = places
    path = "/v1/agents/hello/eva/messages"
    headers = {"accept": "text/event-stream"}
    with (
        calling(second) as client,
        client.stream("POST", path, json={"message": {"text": "hi"}}, headers=headers) as stream,
    ):
        lines = stream.iter_lines()
        seen = [next(lines) for _ in range(8)]
    last = [line.partition(": ")[2] for line in seen if line.startswith("id:")][-1]
    message_id = next(json.loads(line[6:])["message_id"] for line in seen if line.startswith("data: "))
    headers["last-event-id"] = last
    with calling(first) as client, client.stream("GET", f"{path}/{message_id}", headers=headers) as stream:
        rest = list(stream.iter_lines())
    assert any("turn_end" in line for line in rest)
    assert not any(line == f"id: {last}" for line in rest)


def test_a_gateway_that_joined_is_not_told_to_reload_or_end_what_is_elsewhere(places: tuple[Place, Place]) -> None:
    first, second = places
    with calling(second) as client:
        refused = client.post("/v1/reload")
        assert refused.status_code == 409, refused.text
        assert "reload where that was started" in refused.text
    os.kill(second.pid, signal.SIGTERM)
    wait_until(lambda: not (second.podium.home / "gateway.json").exists())
    assert send(first, "hello/fay", "hi")["turn"] == 1
    assert "nothing runs on this home" in second.podium("down").stderr
    assert send(first, "hello/fay", "hi")["turn"] == 2


def test_the_door_is_for_homes_on_servers_only() -> None:
    with fresh_home({"PODIUM_SERVICE_LISTEN": "127.0.0.1:0"}) as podium:
        refused = podium("run", HELLO, "--key", "a", "--message", "hi", check=False)
        assert refused.returncode != 0
        assert "PODIUM_SERVICE_LISTEN is for a home that other machines reach" in refused.stderr
