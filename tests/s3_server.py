"""A real server that speaks S3 over HTTP (moto's), in a process of its own, that can be killed and started again."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

__all__ = ["BUCKET", "S3Server", "free_port", "point_at", "running_s3"]

BUCKET = "bucket"
_START_S = 60.0
_FIRST_PORT, _PORTS = 20_000, 12_000
"""Above those that Ray's workers take, below those that Linux gives to connections."""


class S3Server:
    """A server with one bucket.

    Args:
        directory: for its log and its record.
        recorded: what it was sent is recorded, so that it has it again when it is started again.
        address: where it listens.
    """

    def __init__(self, directory: Path, *, recorded: bool = False, address: str = "127.0.0.1") -> None:
        self._address = address
        self._directory = directory
        self._recorded = recorded
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self._address}:{self.port}"

    def options(self, endpoint: str | None = None) -> dict[str, Any]:
        """What the fsspec file system takes to reach it."""
        return {
            "key": "testing",
            "secret": "testing",
            "endpoint_url": endpoint or self.endpoint,
            "client_kwargs": {"region_name": "us-east-1"},
        }

    def start(self) -> None:
        """Start it and wait until it answers; whatever keeps it from that is raised, with its log."""
        record = self._directory / "record"
        known = record.exists()
        recording = {"MOTO_RECORDER_FILEPATH": str(record), "MOTO_ENABLE_RECORDING": "True"} if self._recorded else {}
        log = self._directory / "log"
        with log.open("ab") as output:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", self._address, "-p", str(self.port)],
                stdout=output,
                stderr=output,
                env={**os.environ, **recording},
            )

        def is_up() -> bool:
            try:
                self._ask("GET", "/moto-api/data.json")
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, f"moto's server does not start:\n{log.read_text()}"
                return False
            return True

        wait_until(is_up, "moto's server does not start")
        if known:
            self._ask("POST", "/moto-api/recorder/stop-recording")
            self._ask("POST", "/moto-api/recorder/replay-recording")
            self._ask("POST", "/moto-api/recorder/start-recording")
        else:
            self.make_bucket()

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._process = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let it take connections meanwhile, and answer none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def empty(self) -> None:
        """Forget all that it was sent, but for the bucket."""
        self._ask("POST", "/moto-api/reset")
        self.make_bucket()

    def make_bucket(self, name: str = BUCKET) -> None:
        """Make a bucket. Not through fsspec, which asks for a region that this server refuses."""
        self._ask("PUT", f"/{name}")

    def _ask(self, method: str, path: str) -> None:
        request = urllib.request.Request(self.endpoint + path, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()


@contextmanager
def running_s3(directory: Path, *, recorded: bool = False, address: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run a server of one's own: one that is to be killed. Other tests share the fixture `s3`."""
    directory.mkdir(parents=True, exist_ok=True)
    server = S3Server(directory, recorded=recorded, address=address)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def point_at(patch: pytest.MonkeyPatch, endpoint: str, cache: Path) -> None:
    """Let this process, and those it starts, find an endpoint where the AWS tools do; keep what is fetched apart."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # they know the endpoint of the test before
    patch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    patch.setenv("CHRONICLE_CACHE_DIR", str(cache))
    patch.setenv("CHRONICLE_STORE_PATIENCE_S", "0")  # five attempts


def free_port() -> int:
    """Return a port that nobody listens at, and that the kernel will not give to a connection before it is used."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
