"""Random kills of all kinds of processes under load: no accepted message is lost, none is handled twice.

Clients send to agents of both isolations through the gateway. After each kill, and after a stop of everything in order,
the next one comes when further messages were answered; so there is load at each, and nothing waits for long. At the end
the agents' states, files and journals are compared with what the clients were told.

The clients repeat what failed under the same idempotency keys, as programs of users do.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator.gateway_record import read_record
from coordinator.home import Home
from tests.e2e.chaos.judge import judge, told
from tests.e2e.conftest import AGENTS, TIMEOUT_S, Podium, fresh_home, processes_of, runs
from tests.e2e.servers import Servers, servers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
TYPES = ("clerk", "sharedclerk")
KINDS = {
    "host": "ray::HostActor",
    "node manager": "ray::NodeManagerActor",
    "coordinator": "ray::CoordinatorActor",
    "mount server": "chronicle.fuse.zygote.main",
    "raylet": "/raylet/raylet",
    "service": "coordinator.service.daemon",
    "store process": "coordinator.store.process",
}
"""What is killed, by a part of its command line; besides the gateway, the clients, and all at once."""
SHORT = ("host", "coordinator", "gateway", "node manager", "client", "mount server", "service", "raylet", "host")
ON_SERVERS = (
    *("store process", "host", "database", "store process", "coordinator"),
    *("object store", "store process", "service", "database", "gateway"),
)
AWAY_S = 3.0
"""For the object store."""
RECOVERY_S = 180.0
"""For a new service on a busy machine; what happens within it is checked at the end."""


class Chaos:
    """A served home, its clients, and what they were told."""

    def __init__(self, podium: Podium, directory: Path, clients: int, keys: int, seed: int) -> None:
        self.podium = podium
        self.directory = directory
        self.draw = random.Random(seed)
        self._agents = [f"{agent_type}/{key}" for key in range(keys) for agent_type in TYPES]
        self.servers: Servers | None = None
        """Of the home, if it is on some."""
        self._names = itertools.count()
        self._clients: list[subprocess.Popen[bytes]] = []
        self._project = directory / "podium.toml"
        shutil.copy(AGENTS / "clerks.py", directory)
        self._project.write_text('agents = ["clerks.py:Clerk", "clerks.py:SharedClerk"]\n')
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.up()
        for _ in range(clients):
            self.start_client()

    # -- what runs ------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Serve, unless it is served."""
        self.podium("up", "--project", str(self._project), "--detach", "--port", str(self._port))

    def start_client(self) -> None:
        """Start a client, which has messages of its own."""
        url, name = f"http://127.0.0.1:{self._port}", f"client{next(self._names)}"
        command = [sys.executable, "-m", "tests.e2e.chaos.sender", url, name, str(self.directory), *self._agents]
        environment = {**self.podium.environment, "PODIUM_HOME": str(self.podium.home)}
        self._clients.append(subprocess.Popen(command, cwd=ROOT, env=environment))

    def kill(self, kind: str) -> None:
        """Kill one process of a kind with SIGKILL, and start again what nobody else does."""
        match kind:
            case "gateway":
                record = read_record(Home(self.podium.home))
                assert record is not None, "the gateway has ended by itself"
                os.kill(record.pid, signal.SIGKILL)
                wait_until(lambda: not runs(record.pid))
                self.up()
            case "client":
                client = self._clients.pop(self.draw.randrange(len(self._clients)))
                client.kill()
                client.wait(TIMEOUT_S)
                self.start_client()
            case "database":
                assert self.servers is not None
                self.servers.postgres.kill()
                self.servers.postgres.start()
            case "object store":
                assert self.servers is not None
                with self.servers.s3.stopped():
                    time.sleep(AWAY_S)
            case "everything":
                self.podium("down")
                self.up()
            case _:
                found = processes_of(self.podium, KINDS[kind])
                if found:  # an agent may sleep, and no host run
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.draw.choice(found), signal.SIGKILL)

    def wait_for_answers(self, more: int, after: str) -> None:
        """Wait until so many further messages were answered."""
        wanted = len(told(self.directory, "answered")) + more
        wait_until(
            lambda: len(told(self.directory, "answered")) >= wanted, f"no answers after the kill of {after}", RECOVERY_S
        )
        assert all(client.poll() is None for client in self._clients), "a client has failed"

    def finish(self) -> None:
        """Have the clients end when all their messages are answered."""
        (self.directory / "enough").touch()
        for client in self._clients:
            assert client.wait(RECOVERY_S) == 0

    def end(self) -> None:
        """Kill what a failed test left."""
        for client in self._clients:
            client.kill()
            client.wait(TIMEOUT_S)
        self.podium("down", check=False)

    def check(self) -> None:
        """Compare states, files, journals and notes with what the clients were told."""

        def run(*arguments: str) -> str:
            return self.podium(*arguments).stdout

        judge(Home(self.podium.home), self.directory, self._agents, run)


@contextlib.contextmanager
def chaos(directory: Path, *, clients: int, keys: int, seed: int, **environment: str) -> Iterator[Chaos]:
    """Serve agents, and have clients send to them."""
    with fresh_home({"PODIUM_LEASE_TTL_S": "5", "PODIUM_STOP_TIMEOUT_S": "5", **environment}) as podium:
        going = Chaos(podium, directory, clients, keys, seed)
        try:
            yield going
        finally:
            going.end()


def play(going: Chaos, kinds: list[str], answers: int) -> None:
    """Kill, and wait for answers, in turn; then check."""
    going.wait_for_answers(answers, "nothing")
    for kind in kinds:
        print("kill", kind, len(told(going.directory, "answered")), flush=True)
        going.kill(kind)
        going.wait_for_answers(answers, kind)
    going.finish()
    going.check()


def test_kills_under_load_lose_and_repeat_nothing(tmp_path: Path) -> None:
    with chaos(tmp_path, clients=2, keys=3, seed=1) as going:
        play(going, list(SHORT), 12)
        assert len(told(going.directory, "acknowledged")) > 12 * len(SHORT)


def test_kills_lose_and_repeat_nothing_of_a_home_on_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers(tmp_path) as both:
        for name, value in both.settings.items():
            monkeypatch.setenv(name, value)  # of the checks
        with chaos(tmp_path, clients=2, keys=2, seed=1, **both.settings) as going:
            going.servers = both
            play(going, list(ON_SERVERS), 12)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2])
def test_thousands_of_messages_through_many_kills(tmp_path: Path, seed: int) -> None:
    kinds = [*KINDS, "gateway", "client", "everything"]
    order = [kind for _ in range(5) for kind in random.Random(seed).sample(kinds, len(kinds))]
    with chaos(tmp_path, clients=3, keys=6, seed=seed) as going:
        play(going, order, 60)
        assert len(told(going.directory, "acknowledged")) > 2500
