"""``podium doctor`` on real things that are broken: each finding says what is amiss, and what to do."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from chronicle.clock import ManualClock, SystemClock
from coordinator.cli.exits import ExitCode
from coordinator.doctor.examination import CHECKS, examine
from coordinator.doctor.finding import Finding, Subject
from coordinator.home import Home
from coordinator.homes.opening import create_home
from coordinator.settings import Settings
from podium.sandbox.policy import RUNGS
from tests.contract.postgres_server import PostgresServer, new_postgres
from tests.contract.test_home_in_postgres import url_of
from tests.faulty_proxy import running_proxy
from tests.s3_server import BUCKET, S3Server, point_at
from tests.unit.coordinator.cli.cli_home import Podium

if TYPE_CHECKING:
    from collections.abc import Iterator

CLOSED = """
set -e
mount -t tmpfs tmpfs "$0"
mknod -m 600 "$0/fuse" c 10 229
mount --bind "$0/fuse" /dev/fuse
exec "$@"
"""
"""Of a shell: runs a program for which only root may open ``/dev/fuse``."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that asks the user ``locked`` for a password."""
    with new_postgres(address="127.0.0.1") as server:
        hba = Path(server.host) / "data" / "pg_hba.conf"
        hba.write_text(f"local all locked scram-sha-256\n{hba.read_text()}")
        server.start()
        with psycopg.connect(server.conninfo, autocommit=True) as database:
            database.execute("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right'")
        try:
            yield server
        finally:
            server.stop_at_once()


@pytest.fixture
def journal_url(server: PostgresServer) -> str:
    return url_of(server.conninfo, f"home_{uuid4().hex}")


@pytest.fixture
def blobs_url(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    point_at(monkeypatch, s3.endpoint, tmp_path / "cache")
    return f"s3://{BUCKET}/{uuid4().hex}"


@pytest.fixture
def laptop(tmp_path: Path) -> Subject:
    """A machine with a home of the defaults."""
    nothing: dict[str, Any] = {"journal_url": "", "blobs_url": "", "ray": "", "url": "", "key": ""}
    settings = Settings(workspaces=tmp_path)
    return Subject(Home(tmp_path / "home"), **nothing, reaches=(), misses=(), settings=settings, clock=SystemClock())


def found(subject: Subject, check: str) -> Finding:
    [(name, finding)] = examine(subject, [check])
    assert name == check
    return finding


@pytest.fixture
def podium(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Podium:
    return Podium(tmp_path / "home", capsys)


@pytest.mark.fuse
def test_a_laptop_has_nothing_that_fails(podium: Podium) -> None:
    before = podium.json("doctor")
    assert before["ok"]
    assert {each["check"]: each["status"] for each in before["checks"]} == {
        **dict.fromkeys(CHECKS, "skipped"),
        **dict.fromkeys(("versions", "mount", "ray"), "ok"),
    }
    assert not podium.home.exists(), "it makes nothing"
    Home(podium.home).create().journal().close()
    after = {each["check"]: each for each in podium.json("doctor")["checks"]}
    assert after["journal"]["status"] == "ok"
    assert str(podium.home) in after["journal"]["found"]
    assert "its history read" in podium("doctor", "--only", "mount")


def test_a_check_that_is_none(podium: Podium) -> None:
    podium("doctor", "--only", "mounts", code=ExitCode.USAGE)
    assert "mount, journal" in podium.err


@pytest.mark.skipif(os.geteuid() != 0, reason="empties the limit of user namespaces in a namespace of its own")
def test_the_sandboxes_of_a_machine(podium: Podium) -> None:
    found = podium.json("doctor", "--sandbox")
    assert {each["check"]: each["status"] for each in found["checks"]} == dict.fromkeys([*RUNGS, "proxy"], "ok")
    podium("doctor", "--sandbox", "--only", "mount", code=ExitCode.USAGE)
    # Where no user namespace can be made, as in many pods: the program is there, and does not work.
    program = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        program,
        "sh",
        sys.executable,
        "-m",
        "coordinator.cli",
    ]
    said = subprocess.run([*command, "doctor", "--sandbox"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"(?m)^ok +landlock +works", said)
    assert re.search(r"(?m)^warning +bubblewrap +does not work here: .*it needs user namespaces", said)
    assert re.search(r"(?m)^warning +proxy +does not work here: it needs bubblewrap", said)


# -- mounts -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes a user who may not open /dev/fuse")
@pytest.mark.parametrize(("presentation", "status"), [("fuse", "failed"), ("auto", "warning"), ("dir", "skipped")])
def test_a_user_who_may_not_open_the_device(presentation: str, status: str, tmp_path: Path) -> None:
    program = (
        "import os; from types import SimpleNamespace; from coordinator.settings import Settings; "
        f"from coordinator.doctor.machine import check_mount; settings = Settings(presentation={presentation!r}); "
        "os.setuid(65534); print(check_mount(SimpleNamespace(settings=settings)).as_json())"
    )
    command = ["unshare", "--mount", "sh", "-c", CLOSED, str(tmp_path), sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"'status': '{status}'" in said.stdout
    if status != "skipped":
        assert "/dev/fuse cannot be opened (Permission denied)" in said.stdout
        assert "PODIUM_PRESENTATION=dir" in said.stdout


# -- the journal ------------------------------------------------------------------------------------------------------


def test_a_home_on_servers_that_is_well(
    podium: Podium, journal_url: str, blobs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_JOURNAL_URL", journal_url)
    monkeypatch.setenv("PODIUM_BLOBS_URL", blobs_url)
    before = podium("doctor", "--only", "journal", "--only", "bucket")
    assert "no home yet: podium up makes it" in before
    assert not podium.home.exists(), "nor in the database"
    create_home(Home(podium.home), blobs_url, journal_url)
    checks = {each["check"]: each for each in podium.json("doctor")["checks"]}
    statuses = {name: each["status"] for name, each in checks.items()}
    assert statuses.items() >= dict.fromkeys(("journal", "bucket", "clocks"), "ok").items()
    assert "written and read; on this machine" in checks["journal"]["found"]


def test_a_wrong_password(server: PostgresServer, laptop: Subject) -> None:
    place = url_of(server.conninfo, "home", "wrong").replace("journal:", "locked:")
    finding = found(replace(laptop, journal_url=place), "journal")
    assert finding.status == "failed"
    assert 'password authentication failed for user "locked"' in finding.found
    assert "check the journal's URL and password" in finding.found
    assert "wrong" not in finding.found, "it does not show the password"
    right = url_of(server.conninfo, "home", "right").replace("journal:", "locked:")
    assert found(replace(laptop, journal_url=right), "journal").status == "ok"


@pytest.mark.parametrize(
    ("setting", "what"),
    [("default_transaction_read_only = on", "takes no writes"), ("fsync = off", "fsync is off")],
)
def test_a_server_that_podium_cannot_rely_on(
    server: PostgresServer, laptop: Subject, journal_url: str, setting: str, what: str
) -> None:
    with psycopg.connect(server.conninfo, autocommit=True) as database:
        database.execute(f"ALTER SYSTEM SET {setting}".encode())
        database.execute("SELECT pg_reload_conf()")
        name, _, value = setting.partition(" = ")
        while database.execute("SELECT current_setting(%s)", (name,)).fetchone() != (value,):
            pass
        try:
            finding = found(replace(laptop, journal_url=journal_url), "journal")
        finally:
            database.execute("SET default_transaction_read_only = off")
            database.execute(f"ALTER SYSTEM RESET {name}".encode())
            database.execute("SELECT pg_reload_conf()")
            while database.execute("SELECT setting FROM pg_settings WHERE name = 'fsync'").fetchone() != ("on",):
                pass
    assert (finding.status, what in finding.found) == ("failed", True)
    assert finding.remedy


# -- the bucket -------------------------------------------------------------------------------------------------------


def test_a_bucket_that_forgets_conditions(
    s3: S3Server, laptop: Subject, blobs_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(replace(laptop, blobs_url=blobs_url), "bucket").status == "ok"
    with running_proxy(s3.port) as proxy:
        proxy.forgets_conditions = True
        point_at(monkeypatch, proxy.endpoint, tmp_path / "cache")
        finding = found(replace(laptop, blobs_url=blobs_url), "bucket")
    assert finding.status == "failed"
    assert "replaces an object that was to be created only if it is absent" in finding.found
    assert "take a store, or a version of it, that honours conditional writes" in finding.found


# -- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead_s", "said"), [(60, "60.0 s ahead of"), (-60, "s behind")])
def test_a_clock_that_is_not_that_of_the_database_and_the_bucket(
    laptop: Subject, journal_url: str, blobs_url: str, ahead_s: int, said: str
) -> None:
    subject = replace(laptop, journal_url=journal_url, blobs_url=blobs_url)
    assert found(subject, "clocks").status == "ok"
    skewed = ManualClock(SystemClock().now_ms() + ahead_s * 1000)
    finding = found(replace(subject, clock=skewed), "clocks")
    assert finding.status == "failed"
    assert "the database" in finding.found
    assert "the bucket" in finding.found
    assert said.partition(" s ")[2] in finding.found
    assert "NTP" in finding.remedy


# -- the network ------------------------------------------------------------------------------------------------------


def test_what_is_reached_and_what_is_not(podium: Podium) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        there, not_there = (f"127.0.0.1:{each.getsockname()[1]}" for each in (listener, closed))
        only = ("doctor", "--only", "network")
        assert f"{there} is reached; {not_there} is not" in podium(*only, "--reaches", there, "--misses", not_there)
        said = podium(*only, "--reaches", not_there, code=ExitCode.UNFIT)
        assert f"failed   network   cannot be reached from here: {not_there} (Connection refused)" in said
        said = json.loads(podium(*only, "--misses", there, "--json", code=ExitCode.UNFIT))
        assert not said["ok"]
        assert "must not be" in said["checks"][0]["found"]


def test_a_gateway_that_is_not_there(laptop: Subject) -> None:
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        finding = found(replace(laptop, url=f"http://127.0.0.1:{closed.getsockname()[1]}"), "gateway")
    assert finding.status == "failed"
    assert "does not answer that the home can be used" in finding.found
    assert "podium up runs there" in finding.remedy
