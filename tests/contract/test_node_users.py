"""``podium node`` beside agents' code of another user, on one machine: all that keeps them apart is who owns what.

tests/k8s/test_trial.py has the containers of the chart, with agents of Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.door import through_door
from coordinator.fleet.nodes.machines import published_machine
from coordinator.home import Home
from coordinator.homes.opening import open_records
from tests.contract.test_starting import READY, environment, probed, running, server, started
from tests.e2e.conftest import command
from tests.leftovers import new_directory
from tests.s3_server import free_port
from tests.users import as_user
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.door import Door
    from tests.contract.postgres_server import PostgresServer

__all__ = ["environment", "server"]

NODE, HOSTS, STRANGER = 64_001, 64_002, 64_003
GROUP = 64_100
ROOT = Path(__file__).parents[2]
STEAL = """
import json, sys
from pathlib import Path
from tests.e2e.agents import thief
run_dir, home, *secrets = sys.argv[1:]
found = {"node": thief.beside(Path(run_dir), Path(home)), "files": thief.in_files(Path(home).parent, secrets),
         "processes": thief.readable(secrets)}
print(json.dumps(found))
"""
REFUSE = """
import os, sys
from pathlib import Path
from coordinator.home import Home
from coordinator.home.host_places import host_places
from podium.errors import HomeError
node, *places = map(Path, sys.argv[1:])
os.environ["PODIUM_RUN_DIR"] = str(node / "run")
for place in places:
    try:
        host_places(Home(node / "home"), place)
        print("taken")
    except HomeError as error:
        print(error)
del os.environ["PODIUM_RUN_DIR"]
try:
    host_places(Home(node / "home"), places[-1])
except HomeError as error:
    assert "give PODIUM_RUN_DIR" in str(error)
    print(f"PODIUM_HOSTS_DIR={places[-1]} without a run directory")
"""
SERVE = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o660)
    listener.listen()
    print('ready', flush=True)
    connection, _ = listener.accept()
    connection.sendall(b"hello")
    connection.recv(1)
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short directory with one for each user."""
    with new_directory("users-") as made:
        made.chmod(0o755)
        for name, user, mode in (("node", NODE, 0o755), ("hosts", HOSTS, 0o2770)):
            (made / name).mkdir()
            os.chown(made / name, user, GROUP)
            (made / name).chmod(mode)
        yield made


@pytest.fixture
def given(environment: dict[str, str], directory: Path) -> dict[str, str]:
    """The variables of a ``podium node`` that has a user of its own."""
    return {
        **environment,
        "PODIUM_HOME": str(directory / "node" / "home"),
        "PODIUM_RUN_DIR": str(directory / "node" / "run"),
        "PODIUM_HOSTS_DIR": str(directory / "hosts"),
        "PODIUM_SERVICE_LISTEN": "127.0.0.1:0",
        "PODIUM_HEALTH_LISTEN": f"127.0.0.1:{free_port()}",
        "CHRONICLE_CACHE_DIR": str(directory / "node" / "cache"),
        "PGPASSWORD": f"p{os.urandom(8).hex()}",
        "HOME": str(directory),
    }


def node_of(given: dict[str, str], log: Path) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    return running(given, log, "node", before=as_user(NODE, GROUP))


def run_as(user: int, group: int, script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    said = subprocess.run(
        [*as_user(user, group), sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},  # it has none of ours
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    return said


def test_code_of_agents_may_connect_to_the_store_process_and_do_nothing_else(
    server: PostgresServer, given: dict[str, str], directory: Path, tmp_path: Path
) -> None:
    run_dir, home = Path(given["PODIUM_RUN_DIR"]), Path(given["PODIUM_HOME"])
    secrets = [given["PGPASSWORD"], given["AWS_SECRET_ACCESS_KEY"]]
    with started(server), node_of(given, tmp_path / "log"):
        Path(server.host).chmod(0o755)
        wait_until(lambda: probed(f"http://{given['PODIUM_HEALTH_LISTEN']}") == READY, "it is not ready")
        found = json.loads(run_as(HOSTS, GROUP, STEAL, run_dir, home, *secrets).stdout)
        said = found["node"]
        assert said.pop("connect") == "got None"
        assert {name: why for name, why in said.items() if not why.startswith("refused")} == {}
        assert found["files"] == []
        assert [line for line in found["processes"] if "podium" in line or "coordinator." in line] == []
        stranger = json.loads(run_as(STRANGER, STRANGER, STEAL, run_dir, home, *secrets).stdout)
        assert stranger["node"]["connect"] == "refused: Permission denied"
        assert home.stat().st_mode & 0o077 == 0
        assert {path.name for path in run_dir.iterdir() if path.is_socket()} == {"store.sock", "models.sock"}


@contextlib.contextmanager
def serving_as(user: int, path: Path) -> Iterator[None]:
    """Have a process of a user say hello at a socket."""
    command = [*as_user(user, GROUP), sys.executable, "-c", SERVE, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield
        finally:
            process.kill()


async def heard(door: Door, host: str) -> bytes:
    """What is said by who listens where a host should."""
    async with asyncio.timeout(60):
        reader, writer = await through_door(door, "host", host=host)
        try:
            return await reader.readexactly(5)
        finally:
            writer.close()


def examined(given: dict[str, str], code: int) -> str:
    """What ``podium doctor`` says to the user of ``podium node`` of who owns what."""
    doctor = [*as_user(NODE, GROUP), *command(), "doctor", "--only", "owners"]
    said = subprocess.run(doctor, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == code, said.stderr
    return said.stdout


def test_a_socket_of_a_host_is_one_at_which_its_user_listens(
    server: PostgresServer, given: dict[str, str], directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets, own = directory / "hosts" / "run" / "hosts", directory / "node" / "own.sock"
    plant = "import os, sys; os.makedirs(sys.argv[1], 0o750); os.symlink(sys.argv[2], sys.argv[1] + '/host_1')"
    monkeypatch.setenv("PODIUM_JOURNAL_URL", given["PODIUM_JOURNAL_URL"])
    with started(server), node_of(given, tmp_path / "log"):
        Path(server.host).chmod(0o755)
        wait_until(lambda: probed(f"http://{given['PODIUM_HEALTH_LISTEN']}") == READY, "it is not ready")
        home = Home(Path(given["PODIUM_HOME"]))
        machine = published_machine(open_records(home).documents(), socket.gethostname())
        assert machine is not None
        assert (machine.run_dir, machine.group) == (str(directory / "hosts" / "run"), GROUP)
        run_as(HOSTS, GROUP, plant, sockets, own)
        with serving_as(NODE, own), pytest.raises(ConnectionRefusedError):
            asyncio.run(heard(machine.door, "host_1"))
        assert f"a process of the user {NODE} listens at" in (home.logs / "machine.log").read_text()
        with serving_as(HOSTS, sockets / "host_2"):
            assert asyncio.run(heard(machine.door, "host_2")) == b"hello"
        assert f"belongs to the user {NODE}, and agents run as {HOSTS}" in examined(given, 0)
        os.chown(home.path / "id", HOSTS, GROUP)
        assert f"has files of the users {HOSTS}, and this one is {NODE}" in examined(given, ExitCode.UNFIT)


def test_a_directory_that_keeps_nobody_apart_is_refused(directory: Path) -> None:
    (own := directory / "own").mkdir()
    os.chown(own, NODE, GROUP)
    (link := directory / "link").symlink_to(directory / "hosts")
    refused = {
        directory / "node" / "home" / "hosts": "lie in one another: give each user its own",
        directory / "node": "lie in one another",
        directory / "nowhere": "cannot be used (No such file or directory): make it",
        own: "is not a directory of another user",
        link: "is not a directory of another user",
        Path("/etc"): "has the group 0, to which the user 64001 does not belong",
    }
    said = run_as(NODE, GROUP, REFUSE, directory / "node", *refused, directory / "hosts").stdout.splitlines()
    assert [why for why, line in zip(refused.values(), said, strict=False) if why not in line] == []
    assert said[len(refused) :] == ["taken", f"PODIUM_HOSTS_DIR={directory / 'hosts'} without a run directory"]
