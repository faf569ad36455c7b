"""Opening a connection to a home's service, starting the service if none runs, and ending it.

The time of a start is Ray's. A client does not import Ray. The service runs in a session of its own, out of reach of
the client's terminal and its signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TextIO

from coordinator.host.node.process_marks import environment_without_mark
from coordinator.host.node.workspace_paths import WorkspacePaths
from coordinator.service.client import ServiceClient, ServiceError
from coordinator.service.protocol import AWAITS_REGISTRATION, EXIT_HELD, PROTOCOL, STANDBY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from coordinator.home import Home

__all__ = [
    "START_TIMEOUT_S",
    "attach",
    "connect",
    "connect_elsewhere",
    "end_of_log",
    "open_or_start",
    "open_running",
    "serves_elsewhere",
    "stage_of",
    "start_standby",
    "wait_ended",
]

_POLL_S: Final = 0.1
"""Interval of attempts to connect to a starting service; small against the time of a start."""
_HELLO_S: Final = 30.0
"""Timeout for a running service to answer ``hello``."""
START_TIMEOUT_S: Final = 120.0
"""Timeout of a service's start, Ray's included."""


@asynccontextmanager
async def connect(
    home: Home,
    on_progress: Callable[[str], None],
    on_notice: Callable[[str], None],
    timeout_s: float = START_TIMEOUT_S,
) -> AsyncIterator[ServiceClient]:
    """Attach to a home's service while the context lasts; start the service if none runs.

    Args:
        on_progress: called repeatedly during the wait, with a short description of the current stage.
        on_notice: called once, in the client that started the service, with the service's notice for the user.
        timeout_s: timeout of the service's start.

    Raises:
        ServiceError: the service did not start; the message contains the end of its log.
        HomeError: the home cannot be used.
    """
    client, process = await open_or_start(home, on_progress, timeout_s)
    try:
        if process is not None and client.notice:
            on_notice(client.notice)
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def attach(
    home: Home, timeout_s: float = START_TIMEOUT_S, *, elsewhere: bool = True
) -> AsyncIterator[ServiceClient | None]:
    """Attach to a home's service, if one runs or is starting, while the context lasts; do not start one.

    Args:
        elsewhere: whether it may be one that runs on another machine.

    Yields:
        its client; ``None`` if no service runs.

    Raises:
        ServiceError: the service is starting and did not answer in time, or speaks another protocol.
    """
    client = await open_running(home, timeout_s, elsewhere=elsewhere)
    try:
        yield client
    finally:
        if client is not None:
            await client.close()


async def open_or_start(
    home: Home, on_progress: Callable[[str], None], timeout_s: float = START_TIMEOUT_S, *, registers: bool = False
) -> tuple[ServiceClient, subprocess.Popen[bytes] | None]:
    """Return a client of a home's service, which the caller closes, and the service's process if this call started it.

    Cancellation leaves a service that has been started; it ends by itself if no client connects.

    Args:
        registers: whether the caller registers agent classes next: a service that is started has messages of other
            clients wait for it.

    Raises:
        ServiceError, HomeError: as `connect`.
    """
    home.create()
    deadline = _Deadline(timeout_s)
    process: subprocess.Popen[bytes] | None = None
    with contextlib.ExitStack() as starting:
        alone: TextIO | None = None
        while (client := await _attach(home, elsewhere=process is None)) is None:
            if alone is None and (alone := home.start_alone()) is not None:
                starting.enter_context(alone)
            if alone is not None:
                process = await asyncio.to_thread(_start, home, process, registers=registers)
            on_progress(f"{stage_of(home)} ({deadline.elapsed_s:.0f} s)")
            if deadline.passed:
                raise ServiceError(
                    f"the service did not answer for {timeout_s:g} s; {_end_of(home.logs / 'service.log')}"
                )
            await asyncio.sleep(_POLL_S)
    return client, process


async def open_running(
    home: Home, timeout_s: float = START_TIMEOUT_S, *, elsewhere: bool = True, wait: bool = True
) -> ServiceClient | None:
    """Return a client of a home's service, which the caller closes; ``None`` if no service runs or is starting.

    Args:
        elsewhere: as of `attach`.
        wait: whether to wait for one that is starting on this machine.

    Raises:
        ServiceError: as `attach`.
    """
    deadline = _Deadline(timeout_s)
    while (client := await _attach(home, elsewhere=elsewhere)) is None and wait and home.service_alive():
        if deadline.passed:
            raise ServiceError(f"the service did not answer for {timeout_s:g} s; {_end_of(home.logs / 'service.log')}")
        await asyncio.sleep(_POLL_S)
    return client


async def wait_ended(home: Home, timeout_s: float) -> None:
    """Return when no service of a home is left, its run directory included.

    Raises:
        ServiceError: one runs still.
    """
    deadline = _Deadline(timeout_s)
    while home.service_alive():
        if deadline.passed:
            raise ServiceError(f"the service did not end within {timeout_s:g} s; {_end_of(home.logs / 'service.log')}")
        await asyncio.sleep(_POLL_S)


class _Deadline:
    """A deadline on the event loop's clock."""

    def __init__(self, timeout_s: float) -> None:
        self._started_s = asyncio.get_running_loop().time()
        self._timeout_s = timeout_s

    @property
    def elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._started_s

    @property
    def passed(self) -> bool:
        return self.elapsed_s > self._timeout_s


async def _attach(home: Home, *, elsewhere: bool = True) -> ServiceClient | None:
    """Return a client of the running service, ``None`` if none runs or it is ending.

    Args:
        elsewhere: whether it may run on another machine.

    Raises:
        ServiceError: the service speaks another protocol, or does not answer.
        Unavailable: the database of the home cannot be reached.
    """
    is_here = True
    try:
        reader, writer = await asyncio.open_unix_connection(str(home.socket_path))
    except (FileNotFoundError, ConnectionRefusedError):
        if not elsewhere or (found := await connect_elsewhere(home)) is None:
            return None
        is_here, (reader, writer) = False, found
    client = ServiceClient(reader, writer, is_here=is_here)
    try:
        async with asyncio.timeout(_HELLO_S):
            spoken = await client.hello()
    except ServiceError:
        await client.close()
        return None
    except TimeoutError:
        await client.close()
        raise ServiceError(
            f"the running service has not answered for {_HELLO_S:g} s; {_end_of(home.logs / 'service.log')}"
        ) from None
    if spoken != PROTOCOL:
        await client.close()
        raise ServiceError(
            f"the running service speaks protocol {spoken}, this client {PROTOCOL}: end it and try again"
        )
    return client


async def connect_elsewhere(
    home: Home, target: str = "service"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """Return a connection to the service of another directory of the home, or to its model gateway.

    ``None`` if there is no such service, or it cannot be reached.

    Raises:
        Unavailable: the database of the home cannot be reached.
    """
    if not home.is_shared:
        return None
    from coordinator.door import through_door  # noqa: PLC0415
    from coordinator.homes.opening import open_records  # noqa: PLC0415  of homes on servers only
    from coordinator.service.door import published_door  # noqa: PLC0415

    door = await asyncio.to_thread(lambda: published_door(open_records(home).documents()))
    if door is None:
        return None
    try:
        return await through_door(door, target)
    except (OSError, TimeoutError):  # the service has ended without a word, or cannot be reached from here
        return None


def serves_elsewhere(home: Home) -> bool:
    """Return whether the service of another directory of a home can be reached; it blocks.

    Raises:
        Unavailable: the database of the home cannot be reached.
    """

    async def look() -> bool:
        found = await connect_elsewhere(home)
        if found is not None:
            found[1].close()
        return found is not None

    return asyncio.run(look())


def start_standby(home: Home) -> subprocess.Popen[bytes]:
    """Start a service that stands by, and has messages of unknown types wait for a registration when it serves.

    Raises:
        InvalidInput, HomeError: as `open_or_start`.
    """
    return _start(home, None, registers=True, stands_by=True)


def _start(
    home: Home, process: subprocess.Popen[bytes] | None, *, registers: bool, stands_by: bool = False
) -> subprocess.Popen[bytes]:
    """Start the service, unless the process started earlier still runs.

    A service started while an earlier one is ending exits with `EXIT_HELD`.

    Raises:
        ServiceError: the service could not start; the message contains the end of its log.
        InvalidInput: a setting, which the service inherits from this process's environment, is invalid.
        HomeError: the service of a copy of the home is running.
    """
    if process is not None:
        code = process.poll()
        if code is None:
            return process
        if code not in (0, EXIT_HELD):
            raise ServiceError(f"the service did not start; {_end_of(home.logs / 'service.log')}")
    else:
        from coordinator.settings import read_settings  # noqa: PLC0415  only for the start of a service

        WorkspacePaths(read_settings().workspaces, home.id).check(home.path)
    log_fd = os.open(home.logs / "service.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    options = [AWAITS_REGISTRATION] if registers else []
    options += [STANDBY] if stands_by else []
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "coordinator.service.daemon", "--home", str(home.path), *options],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            start_new_session=True,
            env=environment_without_mark(),  # a service started by an agent's process must not end with it
        )
    finally:
        os.close(log_fd)


def stage_of(home: Home) -> str:
    """Return the stage of the start of a home's service, in a few words."""
    try:
        return home.stage_path.read_text(encoding="utf-8").strip() or "starting the service"
    except FileNotFoundError:
        return "starting the service"


def end_of_log(home: Home) -> str:
    """Return the last line of the log of a home's service, as the end of a sentence."""
    return _end_of(home.logs / "service.log")


def _end_of(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except FileNotFoundError:
        lines = []
    return f"{log} ends with: {lines[-1][:300]}" if lines else f"see {log}"
