"""What the code of agents gets at in a home on servers: no credential, and no session but its agent's own."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from coordinator.home import Home
from tests.e2e.conftest import AGENTS, HELLO, TIMEOUT_S, Podium, command, fresh_home
from tests.e2e.servers import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

THIEF = f"{AGENTS / 'thief.py'}:Thief"
PASSWORD, KEY = f"p{uuid4().hex}", f"k{uuid4().hex}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of a home in a database that wants a password, with the credentials."""
    with servers(tmp_path_factory.mktemp("servers")) as both:
        conninfo, settings = both.postgres.conninfo, both.settings
        with psycopg.connect(conninfo, autocommit=True) as database:
            database.execute(f"CREATE ROLE locked LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
            directory = Path(str(conninfo_to_dict(conninfo)["host"]))
            directory.chmod(0o755)  # its socket is for users other than the server's
            hba = directory / "data" / "pg_hba.conf"
            hba.write_text(f"local all locked scram-sha-256\n{hba.read_text()}")
            database.execute("SELECT pg_reload_conf()")
        yield {
            **settings,
            "PODIUM_JOURNAL_URL": settings["PODIUM_JOURNAL_URL"].replace("journal@", "locked@"),
            "PGPASSWORD": PASSWORD,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "PODIUM_PRESENTATION": "dir",  # a mount needs a program with more rights
        }


@pytest.fixture(scope="module")
def found(environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    """What the thief answers."""
    with fresh_home(environment) as podium:
        run(podium, HELLO, "victim", "hi")
        yield stolen(podium, environment)


def run(podium: Podium, agent: str, key: str, text: str) -> list[dict[str, Any]]:
    """Send a message, by a user who is nobody special even where that is root, and return the frames."""
    arguments = ["run", agent, "--key", key, "--message", text, "--json", "--home", str(podium.home)]
    plain = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command(), *arguments]
    said = subprocess.run(plain, env=podium.environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def stolen(podium: Podium, environment: dict[str, str]) -> dict[str, Any]:
    """Have the thief try, and return its answer."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with closing(Home(podium.home).journal(read_only=True)) as journal:
            session = journal.session("hello/victim")
    other = {"session": session.session_id, "branch": session.main_branch_id, "name": "hello/victim@default"}
    message = {
        "backwards": [PASSWORD[::-1], KEY[::-1]],
        "directories": [str(podium.home)],
        "conninfo": environment["PODIUM_JOURNAL_URL"].partition("&schema")[0],
        "other": other,
    }
    data: dict[str, Any] = run(podium, THIEF, "one", json.dumps(message))[-1]["data"]
    return data


def test_no_credential_is_in_its_variables_or_in_a_file_of_the_home(found: dict[str, Any]) -> None:
    assert found["own variables"] == []
    assert found["files"] == []


def test_no_process_lets_its_user_read_a_credential(found: dict[str, Any]) -> None:
    readable = found["processes"]
    assert [line for line in readable if not line.startswith("memory")] == []
    holders = ("coordinator.service.daemon", "coordinator.store.process", "coordinator.models.process", "bin/podium")
    assert [line for line in readable if any(holder in line for holder in holders)] == []
    assert any("raylet" in line for line in readable), "what holds no credential may be read, so it was looked for"


def test_the_database_wants_a_password(found: dict[str, Any]) -> None:
    assert "no password supplied" in found["database"]


def test_ray_leads_it_to_the_other_actors(found: dict[str, Any]) -> None:
    """What it can still do: docs/internals/processes.md."""
    assert "coordinator" in found["ray"]


def test_the_store_process_lets_a_host_at_its_own_session_only(found: dict[str, Any]) -> None:
    said = found["store"]
    assert not [name for name, text in said.items() if text.startswith("got")]
    assert said["commit"].startswith("StaleEpoch")
    assert said["commit without a lease"].startswith("StaleEpoch")
    assert said["read"].startswith("NotFound")
    assert said["read events"].startswith("NotFound")
    assert said["read by name"].startswith("NotFound")
    assert "a host may not call admit" in said["admit"]
    assert "does not know this caller" in said["be the coordinator"]
