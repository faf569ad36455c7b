"""The client of a home's service: it attaches to the service, and starts one if none runs.

The time of a start is Ray's. A client does not import Ray. The service runs in a session of its own, out of reach of
the client's terminal and its signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from chronicle.error_pickling import send_causes_of
from coordinator.host.process_marks import environment_without_mark
from coordinator.host.workspace_paths import WorkspacePaths
from coordinator.process_environment import ProcessEnvironment
from coordinator.service.protocol import EXIT_HELD, MAX_LINE, PROTOCOL, TERMINAL_FRAMES
from podium.errors import PodiumError
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from coordinator.home import Home
    from podium.turn.stream import Frame

__all__ = ["AgentRef", "ServiceClient", "ServiceError", "ServiceRefused", "attach", "connect"]

_POLL_S: Final = 0.1
"""Interval of attempts to connect to a starting service; small against the time of a start."""
_HELLO_S: Final = 30.0
"""Timeout for a running service to answer ``hello``."""
_BEAT_S: Final = 10.0
"""Interval of liveness probes while an answer is awaited."""
_SILENT_S: Final = 60.0
"""Timeout of a probe; a busy machine must not be mistaken for a dead service."""
_CLOSE_S: Final = 2.0
"""Timeout for the connection to close."""
_LOST: Final = {"lost": "the service of this home ended; run the command again: accepted messages are kept"}


send_causes_of("coordinator")


class ServiceError(PodiumError):
    """The service could not be started or reached. Accepted messages are safe."""


class ServiceRefused(PodiumError):
    """The service refused an operation.

    Attributes:
        kind: the name of the error's class in the service.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class AgentRef:
    """An agent class: its file, its name and the agent type that it declares."""

    file: str
    class_name: str
    agent_type: str


class ServiceClient:
    """A connection to a home's service, opened by `connect` or `attach`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._lost = False
        self.notice: str | None = None
        """A notice about this machine, such as why workspaces are plain directories; set by `hello`."""
        self.surroundings: ProcessEnvironment | None = None
        """The environment that agents inherit; set by `hello`, unless the service is of an earlier version."""
        self._listening = asyncio.get_running_loop().create_task(self._listen(), name="service-listener")

    async def hello(self) -> int:
        """Greet the service; return the version of its protocol.

        Raises:
            ServiceError: the service is ending.
        """
        answer = await self._ask({"op": "hello", "protocol": PROTOCOL})
        self.notice = answer["notice"]
        if "surroundings" in answer:
            self.surroundings = ProcessEnvironment.from_wire(answer["surroundings"])
        spoken: int = answer["protocol"]
        return spoken

    async def close(self) -> None:
        """Close the connection; messages that were sent are handled nevertheless."""
        self._listening.cancel()
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):  # a service that hangs does not drain its socket
                await self._writer.wait_closed()

    async def send(
        self,
        agent: AgentRef,
        key: str,
        message: dict[str, Any],
        idempotency_key: str | None = None,
        when_busy: BusyPolicy = BusyPolicy.ENQUEUE,
    ) -> AsyncIterator[Frame]:
        """Send a message and yield its frames, the terminal one last.

        Ending the iteration early does not cancel the message; `cancel` does.

        Raises:
            ServiceRefused: the message was not admitted, or its agent cannot be woken.
            ServiceError: the connection broke.
        """
        request = {
            "op": "send",
            "agent": {"file": agent.file, "class": agent.class_name, "agent_type": agent.agent_type},
            "key": key,
            "message": message,
            "idempotency_key": idempotency_key,
            "when_busy": when_busy,
        }
        async with self._asking(request) as answers:
            while True:
                frame: Frame = _checked(await self._next(answers))["frame"]
                yield frame
                if frame["type"] in TERMINAL_FRAMES:
                    return

    async def cancel(self, agent: str, message_id: str) -> None:
        """Cancel a pending, running or parked message; durable on return.

        The message's stream ends with an ``error`` frame.

        Args:
            agent: the agent's address.

        Raises:
            ServiceRefused: the message was already handled, or does not exist.
            ServiceError: the connection broke; the message may have been cancelled.
        """
        await self._ask({"op": "cancel", "agent": agent, "message_id": message_id})

    async def poke(self, agent: str) -> bool:
        """Have an agent check its inbox; return ``False`` if the service does not know its code."""
        looks: bool = (await self._ask({"op": "poke", "agent": agent}))["looks"]
        return looks

    async def passivate(self, agent: str) -> None:
        """Put an agent to sleep after its running turn; return when it sleeps."""
        await self._ask({"op": "passivate", "agent": agent})

    async def rewind(self, agent: str, turn: int, only: str | None) -> tuple[int, int | None]:
        """Rewind an agent to a turn, after its running turn.

        Returns:
            its last turn before, and the turn of the rewind; ``None`` if there was nothing to change.
        """
        answer = await self._ask({"op": "rewind", "agent": agent, "turn": turn, "only": only})
        return answer["from"], answer["turn"]

    async def ps(self) -> list[dict[str, Any]]:
        """Return the running hosts."""
        result: list[dict[str, Any]] = (await self._ask({"op": "ps"}))["hosts"]
        return result

    async def _listen(self) -> None:
        """Dispatch answers to their requests, until the connection ends."""
        try:
            while line := await self._reader.readline():
                answer = json.loads(line)
                queue = self._answers.get(answer["id"])
                if queue is not None:
                    queue.put_nowait(answer)
        except (ConnectionError, ValueError):
            pass  # reported to the waiting requests below
        finally:
            self._lost = True
            for queue in self._answers.values():
                queue.put_nowait(_LOST)

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        async with self._asking(request) as answers:
            result: dict[str, Any] = _checked(await self._next(answers))["result"]
            return result

    async def _next(self, answers: asyncio.Queue[dict[str, Any]]) -> dict[str, Any]:
        """Return the next answer; waits without a limit while the service answers liveness probes.

        Raises:
            ServiceError: a probe was not answered.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    return await answers.get()
            await self._check_answers()

    async def _check_answers(self) -> None:
        try:
            async with self._asking({"op": "ping"}) as answers, asyncio.timeout(_SILENT_S):
                _checked(await answers.get())
        except TimeoutError:
            raise ServiceError(
                f"the service of this home has not answered for {_SILENT_S:g} s: it hangs; accepted messages are kept"
            ) from None

    @asynccontextmanager
    async def _asking(self, request: dict[str, Any]) -> AsyncIterator[asyncio.Queue[dict[str, Any]]]:
        request_id = next(self._ids)
        line = json.dumps({"id": request_id, **request}).encode() + b"\n"
        if len(line) > MAX_LINE:
            raise ServiceRefused("InvalidInput", f"a message of {len(line)} bytes is too long; the limit is {MAX_LINE}")
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers[request_id] = answers
        if self._lost:
            answers.put_nowait(_LOST)
        try:
            self._writer.write(line)
            with contextlib.suppress(ConnectionError):  # reported by the listener
                await self._writer.drain()
            yield answers
        finally:
            del self._answers[request_id]


@asynccontextmanager
async def connect(
    home: Home,
    on_progress: Callable[[str], None],
    on_notice: Callable[[str], None],
    timeout_s: float = 120.0,
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
    home.create()
    deadline = _Deadline(timeout_s)
    process: subprocess.Popen[bytes] | None = None
    with contextlib.ExitStack() as starting:
        alone: TextIO | None = None
        while (client := await _attach(home)) is None:
            if alone is None and (alone := home.start_alone()) is not None:
                starting.enter_context(alone)
            if alone is not None:
                process = await asyncio.to_thread(_start, home, process)
            on_progress(f"{_stage(home)} ({deadline.elapsed_s:.0f} s)")
            if deadline.passed:
                raise ServiceError(
                    f"the service did not answer for {timeout_s:g} s; {_end_of(home.logs / 'service.log')}"
                )
            await asyncio.sleep(_POLL_S)
    if process is not None and client.notice:
        on_notice(client.notice)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def attach(home: Home, timeout_s: float = 120.0) -> AsyncIterator[ServiceClient | None]:
    """Attach to a home's service, if one runs or is starting, while the context lasts; do not start one.

    Yields:
        its client; ``None`` if no service runs.

    Raises:
        ServiceError: the service is starting and did not answer in time, or speaks another protocol.
    """
    deadline = _Deadline(timeout_s)
    while (client := await _attach(home)) is None and home.service_alive():
        if deadline.passed:
            raise ServiceError(f"the service did not answer for {timeout_s:g} s; {_end_of(home.logs / 'service.log')}")
        await asyncio.sleep(_POLL_S)
    try:
        yield client
    finally:
        if client is not None:
            await client.close()


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


async def _attach(home: Home) -> ServiceClient | None:
    """Return a client of the running service, ``None`` if none runs or it is ending.

    Raises:
        ServiceError: the service speaks another protocol, or does not answer.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(str(home.socket_path), limit=MAX_LINE)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    client = ServiceClient(reader, writer)
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


def _start(home: Home, process: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes]:
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
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "coordinator.service.daemon", "--home", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            start_new_session=True,
            env=environment_without_mark(),  # a service started by an agent's process must not end with it
        )
    finally:
        os.close(log_fd)


def _stage(home: Home) -> str:
    try:
        return home.stage_path.read_text(encoding="utf-8").strip() or "starting the service"
    except FileNotFoundError:
        return "starting the service"


def _end_of(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except FileNotFoundError:
        lines = []
    return f"{log} ends with: {lines[-1][:300]}" if lines else f"see {log}"


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "lost" in answer:
        raise ServiceError(answer["lost"])
    if "error" in answer:
        raise ServiceRefused(answer["error"]["type"], answer["error"]["message"])
    return answer
