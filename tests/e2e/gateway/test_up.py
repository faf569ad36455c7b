"""``podium up`` and ``podium down``: a service that stays up; gateway and service die with messages in flight."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.gateway_record import gateway_runs, read_record
from coordinator.home import Home
from coordinator.service.client import ServiceError
from coordinator.service.link import ServiceLink
from podium.address import Address
from tests.certificates import write_certificate
from tests.e2e.conftest import AGENTS, TIMEOUT_S, Podium, command, fresh_home, processes_of, put_to_sleep, runs
from tests.waiting import INTERVAL_S, until, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.gateway_record import GatewayRecord

DAEMON = "coordinator.service.daemon"
REPLY, EDITED = 'f" {ctx.state.count}"', 'f" {ctx.state.count} edited"'
"""Of the class ``Patient``."""


@dataclass
class Served:
    """A home, and a project whose agents are served from it."""

    podium: Podium
    project: Path

    @classmethod
    @contextlib.contextmanager
    def fresh(cls, directory: Path) -> Iterator[Served]:
        """A home of its own, that is not served yet, and a project in a directory."""
        project = directory / "podium.toml"
        for name in ("plain.py", "troubled.py"):
            shutil.copy(AGENTS / name, directory)
        project.write_text('agents = ["plain.py:Patient", "troubled.py:Troubled"]\n')
        with fresh_home({"PODIUM_STOP_TIMEOUT_S": "5"}) as podium:
            try:
                yield cls(podium, project)
            finally:
                podium("down", check=False)

    def up(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Serve in the background."""
        return self.podium("up", "--project", str(self.project), "--detach", *arguments, check=check)

    def begin(self, *arguments: str) -> dict[str, Any]:
        """Serve in the background at a free port; return its URL, process and log."""
        started: dict[str, Any] = json.loads(self.up("--port", "0", "--json", *arguments).stdout)
        return started

    @property
    def gateway(self) -> GatewayRecord:
        """The gateway that serves the home."""
        record = read_record(self.home)
        assert record is not None
        return record

    def edit(self, file: str, old: str, new: str) -> None:
        """Change the code of the agents."""
        path = self.project.with_name(file)
        code = path.read_text()
        assert old in code
        path.write_text(code.replace(old, new))

    def kill_gateway(self) -> None:
        """Kill the gateway; the service runs on."""
        os.kill(self.gateway.pid, signal.SIGKILL)
        wait_until(lambda: not gateway_runs(self.home))

    @contextlib.contextmanager
    def foreground(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Serve as a user does in a terminal; the gateway is ready. Yield its process and its URL."""
        process = subprocess.Popen(
            [
                *(*command(), "up", "--project", str(self.project), "--port", "0", "--json"),
                *("--home", str(self.home.path), *arguments),
            ],
            env=self.podium.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        with process, process.stdout, process.stderr:
            try:
                started = json.loads(process.stdout.readline())
                assert started["pid"] == process.pid
                yield process, started["url"]
            finally:
                process.kill()

    @property
    def home(self) -> Home:
        return Home(self.podium.home)

    @property
    def service(self) -> int:
        (pid,) = processes_of(self.podium, DAEMON)
        return pid

    def handled(self, agent: str) -> list[str]:
        """The messages that an agent's record has as handled, in order; one that was handled twice is there twice."""
        events = self.podium.lines("log", agent, "--limit", "100000")
        return [event["payload"]["message"]["text"] for event in events if event["type"] == "user_message"]

    def pending(self, agent: str) -> int:
        seen = self.podium.seen(agent)
        assert seen is not None
        return seen.pending

    def attempts(self, agent: str) -> list[int]:
        return [message["attempts"] for message in self.podium.json("inbox", agent, "--all")["messages"]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A home of the test's own, for tests in which the service starts or ends."""
    with Served.fresh(tmp_path) as served:
        yield served


@pytest.fixture(scope="module")
def standing_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A home that tests share, with agents of their own."""
    with Served.fresh(tmp_path_factory.mktemp("standing")) as served:
        _ = served.begin()
        yield served


@pytest.fixture
def standing(standing_home: Served) -> Served:
    """The same, served, whatever the test before did to its gateway and its service."""
    if not gateway_runs(standing_home.home):
        _ = standing_home.begin()
    return standing_home


def get(url: str, path: str) -> int:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def assert_nothing_runs(served: Served) -> None:
    assert not gateway_runs(served.home)
    assert not served.home.service_alive()
    assert not served.home.run_dir.exists(), [str(path) for path in served.home.run_dir.rglob("*")]
    wait_until(lambda: not processes_of(served.podium), "processes are left")


def test_up_serves_until_down_and_only_once(served: Served) -> None:
    first = served.begin()
    assert get(first["url"], "/healthz") == get(first["url"], "/readyz") == 200
    assert read_record(served.home).pid == first["pid"]  # type: ignore[union-attr]
    for more in ([], ["--port", "0"]):
        second = served.up(*more, check=False)
        assert second.returncode == ExitCode.GATEWAY_RUNS
        assert f"is served already, at {first['url']}; podium down ends it" in second.stderr
        assert second.stdout == ""
        assert "starting" not in second.stderr
    service = served.service
    assert "patient/a" in served.podium("run", f"{AGENTS / 'plain.py'}:Patient", "--key", "a", "-m", "hi").stderr
    assert served.service == service, "the service ended with its last client, though it is pinned"
    assert served.podium.json("down") == {"gateway": True, "service": True}
    assert_nothing_runs(served)
    wait_until(lambda: not runs(first["pid"]), "the gateway's process")
    assert served.podium.json("down") == {"gateway": False, "service": False}
    assert served.handled("patient/a") == ["hi"]


def test_a_port_that_is_taken_and_a_host_of_others_are_refused_before_anything_starts(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = served.up("--port", port, check=False)
    assert refused.returncode == ExitCode.PORT_TAKEN
    assert refused.stderr.endswith(
        f"podium: port {port} of 127.0.0.1 is taken by another program; give another one with --port\n"
    )
    elsewhere = served.up("--port", "0", "--host", "192.0.2.77", check=False)
    assert elsewhere.returncode == ExitCode.USAGE
    assert "--host 192.0.2.77 is not an address of this machine" in elsewhere.stderr
    assert_nothing_runs(served)
    assert not (served.podium.home / "local.key").exists()


def test_a_project_whose_agents_do_not_load_is_refused_and_leaves_nothing(served: Served) -> None:
    served.project.write_text('agents = ["plain.py:NotAnAgent"]\n')
    refused = served.up("--port", "0", check=False)
    assert refused.returncode == ExitCode.NOT_AN_AGENT
    assert "agents[0] = 'plain.py:NotAnAgent'" in refused.stderr
    assert_nothing_runs(served)
    assert not processes_of(served.podium)
    assert not (served.home.logs / "service.log").exists(), "a service was started"
    assert not (served.podium.home / "local.key").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_gateway_and_service_in_order(served: Served, number: int, tmp_path: Path) -> None:
    """One of the gateways serves over TLS; the other one has each message handled by the code as it is then."""
    serves_tls, files = number == signal.SIGTERM, (tmp_path / "cert.pem", tmp_path / "key.pem")
    write_certificate(*files)
    tls = ("--tls-cert", str(files[0]), "--tls-key", str(files[1]), "--no-auth")
    with served.foreground(*(tls if serves_tls else ("--reload",))) as (process, url):
        if serves_tls:
            assert url.startswith("https://127.0.0.1:")
            assert ask(url, "/v1/agents") == (200, {"items": [], "next_cursor": None, "remaining": 0})
        else:
            assert served.podium("send", "patient/a", "hi").stdout.endswith(" 1\n")
            served.edit("plain.py", REPLY, EDITED)
            assert served.podium("send", "patient/a", "hi").stdout.endswith(" 2 edited\n")
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, said
        assert said.endswith("ended: gateway, agents and service\n")
    assert_nothing_runs(served)


def test_an_awake_agent_moves_to_edited_code_by_a_reload(standing: Served) -> None:
    asyncio.run(put_to_sleep(standing.podium.home))

    def answers(text: str) -> str:
        return standing.podium("send", "patient/reloaded", text).stdout

    assert answers("hi").endswith(" 1\n")
    standing.edit("plain.py", REPLY, EDITED)
    assert answers("hi").endswith(" 2\n"), "it is awake, and no one has asked for it"
    done = standing.podium.json("reload", "--project", str(standing.project))
    assert done["reloaded"] == ["patient/reloaded"]
    assert answers("hi").endswith(" 3 edited\n")


@contextlib.contextmanager
def following(podium: Podium, agent: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``podium log --follow`` on an agent."""
    process = subprocess.Popen(
        [*command(), "log", agent, "--follow", "--json", *arguments],
        env=podium.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout, process.stderr:
        try:
            yield process
        finally:
            process.kill()


def next_turn(follower: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Return the next events that are shown, up to the end of a turn."""
    assert follower.stdout is not None
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != "turn.committed":
        events.append(json.loads(follower.stdout.readline()))
    return events


def test_the_log_is_followed_in_the_home_and_at_a_url(standing: Served) -> None:
    url, podium = standing.gateway.url, standing.podium
    key = (standing.home.path / "local.key").read_text().strip()
    podium("send", "patient/followed", "first")
    with (
        following(podium, "patient/followed", "--home", str(podium.home)) as here,
        following(podium, "patient/followed", "--url", url, "--key", key) as there,
        following(
            podium, "patient/followed", "--home", str(podium.home), "--type", "user_message", "--limit", "2"
        ) as limited,
    ):
        shown = {follower: next_turn(follower) for follower in (here, there)}
        podium("send", "patient/followed", "second")
        for follower, events in shown.items():
            events.extend(next_turn(follower))
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "each once, in order"
            said = [event["payload"]["message"]["text"] for event in events if event["type"] == "user_message"]
            assert said == ["first", "second"]
            follower.send_signal(signal.SIGINT)
            assert follower.wait(TIMEOUT_S) == ExitCode.INTERRUPTED
        assert shown[here][-1]["event_id"] == shown[there][-1]["event_id"]
        out, _ = limited.communicate(timeout=TIMEOUT_S)
        assert limited.returncode == ExitCode.OK
        assert [json.loads(line)["payload"]["message"]["text"] for line in out.splitlines()] == ["first", "second"]


async def test_messages_in_flight_outlive_the_gateway_and_the_next_one_attaches(
    standing: Served, tmp_path: Path
) -> None:
    service, gate = standing.service, tmp_path / "gate"
    keys = ("flight-a", "flight-b", "flight-c")
    async with asyncio.timeout(TIMEOUT_S), ServiceLink(standing.home, start=False) as link:
        client = await link.client()
        for key in keys:
            for text in (f"wait for {gate}", "after"):
                await client.admit(f"patient/{key}", {"text": text}, f"{key} {text}")
    standing.kill_gateway()
    second = await asyncio.to_thread(standing.begin)
    assert standing.service == service
    gate.touch()
    async with asyncio.timeout(TIMEOUT_S), ServiceLink(standing.home, start=False) as link:
        client = await link.client()
        for key in keys:
            again = await client.admit(f"patient/{key}", {"text": "after"}, f"{key} after")
            assert again.repeated
            frames = [frame async for frame in client.follow(f"patient/{key}", again.message_id)]
            assert frames[-1]["type"] == "turn_end"
    for key in keys:
        assert standing.handled(f"patient/{key}") == [f"wait for {gate}", "after"]
    assert get(second["url"], "/readyz") == 200


async def test_the_gateway_starts_a_killed_service_again_and_no_message_is_lost_or_handled_twice(
    standing: Served, tmp_path: Path
) -> None:
    url, keys = standing.gateway.url, ("start-a", "start-b", "start-c")
    gate, ids = tmp_path / "gate", {}
    async with asyncio.timeout(TIMEOUT_S), ServiceLink(standing.home, start=False) as link:
        client = await link.client()
        for key in keys:
            for text in (f"wait for {gate}", "one", "two"):
                ids[key] = (await client.admit(f"patient/{key}", {"text": text})).message_id
        following = client.follow("patient/start-a", ids["start-a"])
        before = standing.service
        (standing.home.run_dir / "known-agents.json").unlink()  # as a start that fails leaves it
        os.kill(before, signal.SIGKILL)
        with pytest.raises(ServiceError):
            _ = [frame async for frame in following]
        gate.touch()
        await until(
            lambda: standing.home.service_alive() and [p for p in processes_of(standing.podium, DAEMON) if p != before]
        )
        client = await link.client()
        for key, message_id in ids.items():
            frames = [frame async for frame in client.follow(f"patient/{key}", message_id)]
            assert (frames[-1]["type"], frames[-1]["message_id"]) == ("turn_end", message_id)
        while not (status := await client.status())["pinned"]:
            await asyncio.sleep(INTERVAL_S)
        registry = status["registry"]
        assert [agent["agent_type"] for agent in registry] == ["patient", "troubled"]
    for key in keys:
        assert standing.handled(f"patient/{key}") == [f"wait for {gate}", "one", "two"]
    assert get(url, "/readyz") == 200
    assert read_record(standing.home) is not None, "the record went with the run directory of the killed service"


async def test_a_turn_that_is_taken_back_at_the_end_is_no_attempt(standing: Served, tmp_path: Path) -> None:
    """One waits and is interrupted; one blocks the event loop, and its process is killed; one ends in time."""
    gate, begun, ends = tmp_path / "gate", tmp_path / "begun", tmp_path / "ends"
    frames: dict[str, list[dict[str, Any]]] = {"ends": [], "waits": [], "blocks": []}
    texts = {"ends": f"wait for {ends}", "waits": f"wait for {gate}", "blocks": f"block {begun}"}

    async def follow(link: ServiceLink, key: str) -> None:
        client = await link.client()
        admitted = await client.admit(f"troubled/{key}", {"text": texts[key]})
        try:
            async for frame in client.follow(f"troubled/{key}", admitted.message_id):
                frames[key].append(frame)
        except ServiceError:
            frames[key].append({"type": "lost"})

    async with (
        asyncio.timeout(TIMEOUT_S),
        ServiceLink(standing.home, start=False) as link,
        asyncio.TaskGroup() as tasks,
    ):
        for key in texts:
            _ = tasks.create_task(follow(link, key))
        for key in ("ends", "waits"):
            await until(lambda key=key: [frame for frame in frames[key] if frame["type"] == "turn_start"])  # type: ignore[misc]
        await until(begun.exists)
        ending = tasks.create_task(asyncio.to_thread(standing.podium, "down"))
        await until(lambda: not standing.home.socket_path.exists())
        ends.touch()
        assert (await ending).returncode == 0
    assert [said[-1]["type"] for said in frames.values()] == ["turn_end", "lost", "lost"]
    assert_nothing_runs(standing)
    assert standing.attempts("troubled/waits") == standing.attempts("troubled/blocks") == [0]

    gate.touch()
    standing.edit("troubled.py", "time.sleep(600)", "pass")
    await asyncio.to_thread(standing.begin)
    for key in ("waits", "blocks"):
        await until(lambda key=key: standing.pending(f"troubled/{key}") == 0, f"{key} is not handled")  # type: ignore[misc]
        assert standing.attempts(f"troubled/{key}") == []
        types = [event["type"] for event in standing.podium.lines("log", f"troubled/{key}")]
        assert types.count("turn.committed") == 1
        assert standing.podium.json("state", f"troubled/{key}")["state"] == {"count": 1}


def agents_of(served: Served) -> list[str]:
    """The agents of a home."""
    return [row["agent"] for row in served.podium.json("ps", "--all")["agents"]]


async def test_a_backup_of_a_home_whose_agents_work_goes_on_from_its_moment(standing: Served, tmp_path: Path) -> None:
    gate, copy = tmp_path / "gate", tmp_path / "copy"
    over = asyncio.Event()
    turns = {"copied-a": 0, "copied-b": 0}

    async def talk(link: ServiceLink, key: str) -> None:
        client = await link.client()
        while not over.is_set():
            admitted = await client.admit(f"patient/{key}", {"text": f"{key} {turns[key]}"})
            frames = [frame async for frame in client.follow(f"patient/{key}", admitted.message_id)]
            assert frames[-1]["type"] == "turn_end"
            turns[key] += 1

    async with (
        asyncio.timeout(TIMEOUT_S),
        ServiceLink(standing.home, start=False) as link,
        asyncio.TaskGroup() as tasks,
    ):
        for key in turns:
            _ = tasks.create_task(talk(link, key))
        await (await link.client()).admit("patient/copied-c", {"text": f"wait for {gate}"})
        await until(
            lambda: min(turns.values()) > 1 and standing.home.agent_log(Address("patient", "copied-c")).exists()
        )
        before = dict(turns)
        said = await asyncio.to_thread(standing.podium.json, "backup", str(copy))
        assert said["agents"] == len(await asyncio.to_thread(agents_of, standing)) >= 3
        over.set()
    gate.touch()
    standing.podium("down")  # a copy is not served beside its original

    restored = Served(Podium(copy, {**standing.podium.environment, "PODIUM_TEST_HOME": str(copy)}), standing.project)
    assert restored.podium.json("verify")["ok"]
    assert restored.attempts("patient/copied-c") == [0]
    await asyncio.to_thread(restored.begin)
    try:
        for key in (*turns, "copied-c"):
            await until(lambda key=key: restored.pending(f"patient/{key}") == 0, f"{key} is not handled")  # type: ignore[misc]
        assert restored.handled("patient/copied-c") == [f"wait for {gate}"]
        for key in turns:
            assert not restored.attempts(f"patient/{key}")
            handled = restored.handled(f"patient/{key}")
            assert handled == [f"{key} {number}" for number in range(len(handled))]
            assert len(handled) >= before[key]
            assert standing.handled(f"patient/{key}")[: len(handled)] == handled
    finally:
        restored.podium("down")


def ask(url: str, path: str, key: str | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
    """GET a path; the certificate of a test is not checked."""
    place = urlsplit(url)
    if place.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            place.hostname or "", place.port, timeout=TIMEOUT_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={**({"Authorization": f"Bearer {key}"} if key else {}), **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_callers_need_a_key_which_is_shown_once_and_logged_nowhere(standing_home: Served, tmp_path: Path) -> None:
    standing = standing_home
    standing.podium("down")  # unless the test before did
    for arguments, says in (
        (("--no-auth", "--host", "0.0.0.0"), "--no-auth is for loopback only"),
        (("--no-auth", "--allowed-host", "*"), "any web page could call the agents"),
        (("--host", "0.0.0.0"), "podium keys create NAME"),
        (("--tls-cert", str(tmp_path / "none.pem")), "both files"),
    ):
        refused = standing.up("--port", "0", *arguments, check=False)
        assert refused.returncode == ExitCode.USAGE
        assert says in refused.stderr
    (standing.podium.home / "local.key").unlink()
    started = standing.up("--port", "0", "--json")
    url = json.loads(started.stdout)["url"]
    key = (standing.podium.home / "local.key").read_text().strip()
    assert started.stderr.count(key) == 1
    assert ask(url, "/v1/agents")[1]["error"]["code"] == "missing_key"
    status, listed = ask(url, "/v1/agents", key)
    agents = agents_of(standing)
    assert (status, [item["agent"] for item in listed["items"]]) == (200, agents)
    listing = subprocess.run(
        [*command(), "ps", "--url", url],  # as the owner of the home, with its local key
        env={**standing.podium.environment, "PODIUM_HOME": str(standing.podium.home)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert listing.returncode == 0, listing.stderr
    assert [line.split()[0] for line in listing.stdout.splitlines()[1:]] == agents
    assert ask(url, "/v1/agents", key, Host="evil.example")[1]["error"]["code"] == "host_not_allowed"
    made = standing.podium.json("keys", "create", "ci", "--tenant", "acme")
    assert ask(url, "/v1/agents", made["key"])[0] == 200
    standing.podium("keys", "revoke", made["key_id"])
    assert ask(url, "/v1/agents", made["key"])[1]["error"]["code"] == "unknown_key"
    standing.kill_gateway()
    again = standing.up("--port", "0")
    assert key not in again.stderr
    standing.podium("down")
    there = {file for file in standing.podium.home.rglob("*") if file.is_file()}
    for secret in (key, made["key"]):
        assert {file.name for file in there if secret.encode() in file.read_bytes()} <= {"local.key"}
