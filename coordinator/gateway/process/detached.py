"""A gateway in a process and session of its own, started by a command that returns when it serves."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from coordinator.gateway_record import read_record
from coordinator.host.node.process_marks import environment_without_mark
from coordinator.service.client import ServiceError
from coordinator.service.connecting import stage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from coordinator.gateway_record import GatewayRecord
    from coordinator.home import Home

__all__ = ["Detached", "is_ready", "start_detached"]

_TIMEOUT_S: Final = 300.0
"""Timeout of the start: more than that of the service, and of the imports of the agents' code."""
_POLL_S: Final = 0.1
_ANSWER_S: Final = 30.0
"""Timeout of an answer to ``/readyz``."""


@dataclass(frozen=True, slots=True)
class Detached:
    """The outcome of a start."""

    log: Path
    record: GatewayRecord | None = None
    """The gateway that serves; ``None`` if it ended instead."""
    exit_code: int = 0
    """Its exit code then."""
    said: str = ""
    """Its messages then."""


def start_detached(home: Home, arguments: Sequence[str], on_progress: Callable[[str], None]) -> Detached:
    """Start a gateway by a command of ``podium``, and return when it serves or has ended.

    Args:
        arguments: the command; it runs the gateway in its own process.
        on_progress: called repeatedly, with a short description of the stage.

    Raises:
        ServiceError: it neither serves nor ended in time; it is ended.
    """
    log = home.logs / "gateway.log"
    log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        begin = os.lseek(log_fd, 0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-m", "coordinator.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            start_new_session=True,
            env=environment_without_mark(),  # a gateway started by an agent's process must not end with it
        )
    finally:
        os.close(log_fd)
    started_s = time.monotonic()
    try:
        while (code := process.poll()) is None:
            record = read_record(home)
            if record is not None and record.pid == process.pid and is_ready(record.url):
                return Detached(log, record)
            waited_s = time.monotonic() - started_s
            if waited_s > _TIMEOUT_S:
                raise ServiceError(f"the gateway does not serve after {_TIMEOUT_S:g} s and is ended; see {log}")
            on_progress(f"{stage_of(home)} ({waited_s:.0f} s)")
            time.sleep(_POLL_S)
    except BaseException:
        process.terminate()
        raise
    return Detached(log, exit_code=code, said=_messages(log, begin))


def is_ready(url: str) -> bool:
    """Whether a gateway answers that its home can be used."""
    place = urlsplit(url)
    if place.scheme == "https":  # its certificate is for the name that clients use, and this is its address
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            place.hostname or "", place.port, timeout=_ANSWER_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _messages(log: Path, begin: int) -> str:
    """Return what a gateway that ended said about it: the lines of a log after a position, from its error on."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    errors = [at for at, line in enumerate(lines) if line.startswith("podium: ")]
    return "\n".join(lines[errors[0] :] if errors else lines[-3:])
