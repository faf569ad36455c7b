"""Processes that are started before what they need: they wait, say for what, answer probes, and serve by themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from coordinator.cli.exits import ExitCode
from tests.certificates import write_certificate
from tests.contract.postgres_server import PostgresServer, new_postgres
from tests.contract.test_home_in_postgres import url_of
from tests.e2e.conftest import command
from tests.s3_server import BUCKET, S3Server, free_port, point_at
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READY, UNREADY = (200, 200), (200, 503)
"""What ``/healthz`` and ``/readyz`` answer."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that does not run yet."""
    with new_postgres() as server:
        yield server


@pytest.fixture
def environment(
    server: PostgresServer, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The variables of a home on the server."""
    point_at(monkeypatch, s3.endpoint, tmp_path / "cache")
    return {
        **os.environ,
        "PODIUM_HOME": str(tmp_path / "home"),
        "PODIUM_JOURNAL_URL": url_of(server.conninfo, f"home_{uuid4().hex}"),
        "PODIUM_BLOBS_URL": f"s3://{BUCKET}/{uuid4().hex}",
        "PODIUM_WORKSPACES": str(tmp_path),
        "PODIUM_START_WAIT_S": "300",
    }


@contextlib.contextmanager
def running(
    environment: dict[str, str], log: Path, *arguments: str, before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command; its output is in a log.

    Args:
        before: the beginning of the command, such as who runs it.
    """
    with log.open("wb") as output:
        process = subprocess.Popen([*before, *command(), *arguments], env=environment, stdout=output, stderr=output)
    try:
        yield process
    except BaseException:
        print(log.read_text())
        raise
    finally:
        process.kill()
        process.wait()


def probed(url: str) -> tuple[int, int]:
    """What probes are answered."""
    first, second = (status(f"{url}{path}") for path in ("/healthz", "/readyz"))
    return first, second


def status(url: str) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=30, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@contextlib.contextmanager
def started(server: PostgresServer) -> Iterator[None]:
    server.start()
    try:
        yield
    finally:
        server.stop_at_once()


def test_a_node_waits_for_its_database_and_is_ready_while_it_can_tell_of_itself(
    server: PostgresServer, environment: dict[str, str], tmp_path: Path
) -> None:
    log, url = tmp_path / "log", f"http://127.0.0.1:{(port := free_port())}"
    run_dir = Path(f"/tmp/run-{port}")  # a short path
    given = {"PODIUM_SERVICE_LISTEN": "127.0.0.1:0", "PODIUM_HEALTH_LISTEN": f"127.0.0.1:{port}"}
    given |= {"PODIUM_LOG_STDERR": "true", "PODIUM_RUN_DIR": str(run_dir)}
    with running({**environment, **given}, log, "node") as process:
        wait_until(lambda: probed(url) == UNREADY, "it does not answer while it waits")
        wait_until(lambda: "podium: waiting, for at most" in log.read_text(), "it does not say that it waits")
        assert "cannot be reached" in log.read_text()
        with started(server):
            wait_until(lambda: probed(url) == READY, "it is not ready with its database")
            assert "may have agents" in log.read_text()
            assert (run_dir / "store.sock").is_socket()
            wait_until(lambda: "machine: 2" in log.read_text(), "it does not show its log")
            assert "machine_published" in log.read_text()
        wait_until(lambda: probed(url) == UNREADY, "it is ready without its database")
        with started(server):
            wait_until(lambda: probed(url) == READY, "it does not come back by itself")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert not run_dir.exists()
    assert log.read_text().count("waiting, for at most") == 1, "it says each reason once"


def test_a_gateway_waits_for_its_database_then_for_the_service(
    server: PostgresServer, environment: dict[str, str], tmp_path: Path
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    (tmp_path / "podium.toml").write_text("agents = []\n")
    log, url = tmp_path / "log", f"https://127.0.0.1:{(port := free_port())}"
    tls = ["--tls-cert", str(certificate), "--tls-key", str(key), "--project", str(tmp_path / "podium.toml")]
    begin = ["up", "--join", "--host", "0.0.0.0", "--port", str(port), *tls]
    with running(environment, log, *begin) as process:
        wait_until(lambda: probed(url) == UNREADY, "it does not answer while it waits")
        assert status(f"{url}/v1/agents") == 503
        wait_until(lambda: "cannot be reached: " in log.read_text(), "it does not say for what it waits")
        with started(server):
            wait_until(lambda: "no service of the home" in log.read_text(), "it does not wait for the service")
            assert probed(url) == UNREADY
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == ExitCode.INTERRUPTED


def test_what_mends_itself_by_no_wait_ends_it_at_once(environment: dict[str, str], tmp_path: Path) -> None:
    wrong = {**environment, "PODIUM_JOURNAL_URL": "mysql://db/home"}
    with running(wrong, tmp_path / "log", "node") as process:
        assert process.wait(60) == ExitCode.USAGE
    soon = {**environment, "PODIUM_START_WAIT_S": "0.1"}
    with running(soon, tmp_path / "log", "node") as process:
        assert process.wait(60) == ExitCode.UNAVAILABLE
