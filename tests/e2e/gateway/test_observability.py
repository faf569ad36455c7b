"""Metrics, traces and logs of a real gateway, service and hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from coordinator.telemetry.exposition import parsed
from coordinator.telemetry.instruments import CATALOGUE
from tests.e2e.conftest import AGENTS, TIMEOUT_S, Podium, command, fresh_home, processes_of, runs
from tests.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.terminal import CTRL_C, TerminalProcess
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.telemetry.recorder import Series, Value

DOCS = Path(__file__).parents[3] / "docs"
TURNS = "podium_turns_total"


@dataclass
class Watched:
    """A gateway that Prometheus watches."""

    podium: Podium
    url: str
    key: str
    """For the metrics."""
    writer: str
    """The key of a client that sends messages."""

    def scrape(self) -> dict[Series, Value]:
        answer = httpx.get(f"{self.url}/metrics", headers={"Authorization": f"Bearer {self.key}"}, timeout=30)
        assert answer.status_code == 200, answer.text
        return parsed(answer.text)

    def value(self, name: str, *labels: str) -> float:
        """Return a counter or a gauge."""
        value = self.scrape().get((name, labels), 0.0)
        assert not isinstance(value, list)
        return value

    def send(self, agent: str, text: str, *, check: bool = True) -> None:
        self.podium("send", agent, text, check=check)


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as found:
        yield found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, receiver: OtlpReceiver) -> Iterator[Watched]:
    project = tmp_path_factory.mktemp("project")
    shutil.copy(AGENTS / "plain.py", project)
    (project / "podium.toml").write_text(
        'agents = ["plain.py:Worker", "plain.py:Patient"]\n'
        '[models.echo]\nprovider = "scripted"\nprice = {input = 1, output = 1}\n'
    )
    surroundings = {
        "PODIUM_METRICS_INTERVAL_S": "0.05",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    with fresh_home(surroundings) as podium:
        file = str(project / "podium.toml")
        began = json.loads(podium("up", "--project", file, "--detach", "--port", "0", "--json").stdout)
        key = podium.json("keys", "create", "prometheus", "--scope", "metrics")["key"]
        try:
            writer = podium.json("keys", "create", "writer", "--scope", "write")["key"]
            yield Watched(podium, began["url"], key, writer)
        finally:
            podium("down", check=False)


def documented() -> set[str]:
    """The metrics that the docs list."""
    return set(re.findall(r"^\| `(podium_[a-z_]+)` \|", (DOCS / "observability.md").read_text(), re.MULTILINE))


def test_every_documented_metric_is_exported_after_real_turns(watched: Watched) -> None:
    names = documented()
    assert names == set(CATALOGUE)
    watched.send("patient/a", "hello")
    watched.send("patient/a", "tell worker/b")
    watched.send("patient/a", "step")
    watched.send("patient/a", "remind")
    watched.send("patient/a", "model")
    watched.send("patient/a", "fail", check=False)
    committed, parked = ("patient", "default", "message", "committed"), ("patient", "default", "message", "parked")
    wait_until(lambda: watched.value(TURNS, *parked), "the last report of patient/a")
    wait_until(lambda: watched.value(TURNS, *committed) == 6, "the turns, that of the reminder included")
    wait_until(lambda: watched.value(TURNS, "worker", "default", "message", "committed"), "worker/b was told")
    wait_until(lambda: watched.value("podium_model_calls_total", "echo", "default", "completed", ""), "the call")
    found = watched.scrape()
    assert {name for name, _ in found} == names
    of_patient = ("patient", "default")
    assert found[TURNS, committed] == 6
    assert found["podium_reminders_fired_total", of_patient] == 1
    assert found["podium_steps_total", (*of_patient, "ended")] == 2, "a call of a model is a step"
    assert found[TURNS, parked] == 1
    assert found["podium_messages_admitted_total", of_patient] == 6
    assert found["podium_messages_told_total", of_patient] == 1
    assert found["podium_wakes_total", (*of_patient, "woken")] == 1
    assert found["podium_agents_awake", of_patient] == 1
    assert found["podium_parked_messages", ()] == 1
    assert found["podium_service_up", ()] == 1
    turns, wakes = found["podium_turn_duration_seconds", of_patient], found["podium_wake_duration_seconds", of_patient]
    assert isinstance(turns, list)
    assert isinstance(wakes, list)
    attempts = 6 + 3
    assert (sum(turns[1:]), sum(wakes[1:])) == (attempts, 1)
    assert turns[0] > 0 < wakes[0]


def test_the_death_of_a_host_takes_nothing_from_the_counters(watched: Watched) -> None:
    labels = ("patient", "default", "message", "committed")
    watched.send("patient/dies", "hello")
    before = wait_until(lambda: watched.value(TURNS, *labels), "the report of the host")
    hosts = processes_of(watched.podium, "HostActor")
    assert hosts
    for pid in hosts:
        os.kill(pid, signal.SIGKILL)
    assert watched.value(TURNS, *labels) == before
    watched.send("patient/dies", "hello again")
    wait_until(lambda: watched.value(TURNS, *labels) == before + 1, "the turn after the death")


def test_a_coordinator_that_is_started_again_counts_from_zero_and_hosts_go_on_reporting(watched: Watched) -> None:
    labels = ("patient", "default", "message", "committed")
    for text in ("one", "two"):
        watched.send("patient/stays", text)
    before = wait_until(lambda: watched.value(TURNS, *labels) >= 2 and watched.value(TURNS, *labels), "the reports")
    (coordinator,) = processes_of(watched.podium, "CoordinatorActor")
    os.kill(coordinator, signal.SIGKILL)
    wait_until(lambda: not runs(coordinator), "the coordinator's end")
    watched.send("patient/stays", "three")
    after = wait_until(lambda: watched.value(TURNS, *labels), "the report to the next coordinator")
    assert after < before, "all counters of the coordinator begin anew, not a part of a sum"
    assert watched.value("podium_agents_awake", "patient", "default") >= 1, "agents are found again"


def test_the_log_of_an_agent_names_agent_epoch_and_turn(watched: Watched) -> None:
    watched.send("patient/logs", "hello")
    watched.send("patient/logs", "fail", check=False)
    lines = [line for log in (watched.podium.home / "logs").glob("*.log") for line in log.read_text().splitlines()]
    (raised, *_) = [line for line in lines if "hook_raised" in line and "agent_id=patient/logs" in line]
    assert "epoch=1 " in raised
    assert "turn=2" in raised


def test_top_shows_the_same_at_home_and_over_http(watched: Watched) -> None:
    watched.send("patient/top", "hello")
    labels = ("patient", "default", "message", "committed")
    wait_until(lambda: watched.value(TURNS, *labels), "the report")

    def of_patient(figures: dict[str, Any]) -> dict[str, Any]:
        (row,) = [row for row in figures["types"] if row["agent_type"] == "patient"]
        assert row["turn"]["p50_s"] > 0
        assert figures["service"]
        return {name: value for name, value in row.items() if name != "awake"}

    at_home = watched.podium.json("top", "--once")
    environment = {**watched.podium.environment, "PODIUM_KEY": watched.key}
    remote = subprocess.run(
        [*command(), "top", "--once", "--json", "--url", watched.url],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert of_patient(json.loads(remote.stdout)) == of_patient(at_home)


def test_top_on_a_terminal_is_live_until_ctrl_c(watched: Watched) -> None:
    top = [*command(), "top", "--interval", "0.2", "--home", str(watched.podium.home)]
    with TerminalProcess(top, watched.podium.home.parent, limit_s=TIMEOUT_S) as terminal:
        terminal.expect("start)")  # single words: what is between them may be the end of a line
        watched.send("patient/live", "hello")
        terminal.expect("(the")
        terminal.expect("patient")
        terminal.press(CTRL_C)
        assert terminal.wait() == 130


def test_a_trace_goes_from_the_http_client_over_turns_to_the_agents_that_are_told(
    watched: Watched, receiver: OtlpReceiver
) -> None:
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    answer = httpx.post(
        f"{watched.url}/v1/agents/patient/traced/messages",
        headers={"Authorization": f"Bearer {watched.writer}", "traceparent": f"00-{trace}-{span}-01"},
        json={"message": {"text": "tell worker/traced"}},
        timeout=TIMEOUT_S,
    )
    assert answer.status_code == 200, answer.text

    def of_trace(name: str) -> list[ReceivedSpan]:
        return [each for each in receiver.named(name) if each.trace_id == trace]

    (told,) = wait_until(lambda: of_trace("process worker"), "the turn of the agent that was told")
    (sent,) = of_trace("send patient")
    (handled,) = of_trace("process patient")
    (request,) = wait_until(lambda: of_trace("POST /v1/agents/{type}/{key}/messages"), "the span of the request")
    assert (request.parent_id, request.kind, request.resource["service.instance.id"]) == (span, "SERVER", "gateway")
    assert request.attributes["http.response.status_code"] == 200
    assert (sent.parent_id, sent.kind) == (request.span_id, "PRODUCER")
    assert sent.resource["service.instance.id"] == "service"
    wakes = {kind: wait_until(lambda: of_trace(f"wake {kind}"), "the wake")[0] for kind in ("patient", "worker")}  # noqa: B023
    assert (wakes["patient"].parent_id, wakes["worker"].parent_id) == (sent.span_id, handled.span_id)
    assert wakes["patient"].resource["service.instance.id"] == "coordinator"
    assert request.start_ns < sent.start_ns < wakes["patient"].start_ns < handled.start_ns
    assert (handled.parent_id, handled.kind) == (sent.span_id, "CONSUMER")
    assert (told.parent_id, told.kind) == (handled.span_id, "CONSUMER")
    assert handled.resource["service.name"] == "podium"
    assert handled.resource["service.instance.id"] != told.resource["service.instance.id"], "one process each"
    message_id = answer.json()["message_id"]
    assert sent.attributes["messaging.message.id"] == handled.attributes["messaging.message.id"] == message_id
    assert handled.attributes["gen_ai.agent.id"] == "patient/traced"
    for turn in (handled, told):
        parts = {each.name for each in receiver.spans if each.parent_id == turn.span_id}
        assert parts >= {"seal", "commit"}
