"""The real command, as a user runs it: homes, one-shot runs and chats over a pipe.

A service takes some six seconds to start and to end, most of them Ray's. So tests share one where they can:

* ``served`` is the command on a home whose service is up. All tests of this folder share it (in one worker of
  pytest-xdist). A test has agents of its own there, by their keys or types, and looks at no others. It may kill hosts,
  actors and mount servers, as the service has to survive that. After each test its chats are closed, and all agents are
  put to sleep. A service that fails at that fails the test, and the next test gets a new home.
* ``served_in_directories`` is the same with workspaces in plain directories.
* ``client`` is a client of the service of ``served``, in this process.
* ``podium`` is the command on a home of the test's own, without a service at first. It is for tests in which the
  service starts, ends or is killed, and for those that need a special environment. A module with several tests that
  need the same environment shares a `SharedService` of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import pytest

from chronicle.clock import SystemClock
from coordinator.home import Home
from coordinator.host.node.workspace_paths import WorkspacePaths
from coordinator.operations.listing import agent_of_summary
from coordinator.service.client import ServiceClient
from coordinator.service.connecting import attach, connect
from podium.address import label
from tests.e2e.command_server import CommandServer
from tests.leftovers import new_directory
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from coordinator.operations.objects import Agent

EXAMPLES = Path(__file__).parents[2] / "examples"
AGENTS = Path(__file__).parent / "agents"
HELLO = f"{EXAMPLES / 'hello.py'}:HelloAgent"
TIMEOUT_S = 120


class Chat:
    """A running ``podium run --json`` without ``--message``: one line in, one message; frames come back."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: TextIO) -> None:
        theirs, ours = os.pipe()
        said, says = os.pipe()
        self._process = COMMANDS.start(arguments, environment, str(Path.cwd()), [theirs, says, log.fileno()])
        for descriptor in (theirs, says):
            os.close(descriptor)
        self._in, self._out = os.fdopen(ours, "w"), os.fdopen(said)
        self.pid: Final = self._process.pid

    def send(self, text: str) -> None:
        """Write a message without waiting for its frames."""
        self._in.write(text + "\n")
        self._in.flush()

    def frame(self) -> dict[str, Any]:
        """Read the next frame."""
        line = self._out.readline()
        assert line, f"the chat ended with exit code {self._process.wait(TIMEOUT_S)}"
        frame: dict[str, Any] = json.loads(line)
        return frame

    def until(self, *types: str) -> list[dict[str, Any]]:
        """Read frames up to one of these types."""
        frames = [self.frame()]
        while frames[-1]["type"] not in types:
            frames.append(self.frame())
        return frames

    def say(self, text: str) -> list[dict[str, Any]]:
        """Send a message and return all its frames."""
        self.send(text)
        return self.until("turn_end", "error")

    def close(self) -> int:
        """Leave as Ctrl-D does, and return the exit code."""
        self._in.close()
        code = self._process.wait(TIMEOUT_S)
        self._out.close()
        return code

    def kill(self) -> None:
        """End the client as a kill does; harmless when it has ended."""
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        for pipe in (self._in, self._out):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Podium:
    """The command on one home."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.home = home
        self.environment = environment
        self.chats: list[Chat] = []

    def __call__(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        finished = COMMANDS.run([*arguments, "--home", str(self.home)], self.environment, TIMEOUT_S)
        assert not check or finished.returncode == 0, finished.stderr
        return finished

    def json(self, *arguments: str) -> Any:
        """Run a command with ``--json`` and return what it printed."""
        return json.loads(self(*arguments, "--json").stdout)

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command with ``--json`` that prints an object a line."""
        return [json.loads(line) for line in self(*arguments, "--json").stdout.splitlines()]

    def chat(self, spec: str, key: str, *arguments: str) -> Chat:
        """Begin a chat.

        Args:
            arguments: more of the command.
        """
        begin = ["run", spec, "--key", key, "--json", "--home", str(self.home), *arguments]
        with (self.home.parent / "chat.log").open("a") as log:
            chat = Chat(begin, self.environment, log)
        self.chats.append(chat)
        return chat

    def row(self, agent: str) -> dict[str, Any]:
        """Return what ``podium ps`` says about an agent; an empty row if it does not know it."""
        rows: list[dict[str, Any]] = self.json("ps", "--all")["agents"]
        return next((row for row in rows if row["agent"] == agent), {})

    def seen(self, agent: str) -> Agent | None:
        """Return what the journal has of an agent; ``None`` if it does not know it. For waits: it starts no process."""
        with contextlib.closing(Home(self.home).journal(read_only=True)) as store:
            for summary in store.summaries():
                if label(summary.session) == agent:
                    return agent_of_summary(summary, SystemClock().now_ms())
        return None

    def end_chats(self) -> None:
        """End the chats that a failed test left."""
        for chat in self.chats:
            chat.kill()

    def end(self) -> None:
        """End the chats that a failed test left, and wait for the service to end."""
        self.end_chats()
        wait_for_end(self.home)
        self.print_logs({})

    def log_sizes(self) -> dict[str, int]:
        """Return the present sizes of the log files, in bytes."""
        return {log.name: log.stat().st_size for log in (self.home / "logs").glob("*")}

    def print_logs(self, since: Mapping[str, int]) -> None:
        """Print the ends of the logs; pytest shows them with a failed test.

        Args:
            since: by log file, the bytes to leave out.
        """
        for log in sorted((self.home / "logs").glob("*")):
            new = log.read_bytes()[since.get(log.name, 0) :].decode(errors="replace")
            if new:
                print(f"-- {log.name}", *new.splitlines()[-40:], sep="\n")


def command() -> list[str]:
    """The installed command of this interpreter's environment."""
    return [str(Path(sys.executable).parent / "podium")]


COMMANDS = CommandServer(*command())


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """End at last what runs the commands."""
    yield
    COMMANDS.end()


def text_of(frames: list[dict[str, Any]]) -> str:
    """What the agent said in the attempt that counted."""
    text = ""
    for frame in frames:
        if frame["type"] == "turn_start":
            text = ""
        elif frame["type"] == "message_end":
            text += frame["text"]
    return text


def places_of(home: Path) -> Path:
    """Where the workspaces of a home's agents are mounted."""
    return WorkspacePaths(Path("/tmp"), Home(home).id).directory


def mounts_of(home: Path) -> list[str]:
    """Mount points of a home's agents, from the kernel."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith((str(places_of(home)), str(home)))]


def processes_of(podium: Podium, command: str = "") -> list[int]:
    """Ids of the processes of a home that live, those whose command line has a text."""
    mark = f"PODIUM_TEST_HOME={podium.home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes() and command.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # it ended meanwhile
                continue
    return found


def runs(pid: int) -> bool:
    """Whether a process runs: one that has ended may be there for a while until its parent asks how."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def kill_at_once(pids: list[int]) -> None:
    """Kill processes, none of which acts on the end of another: all are stopped first.

    One that is gone by then went with its parent, or with what it watched.
    """
    assert pids
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def kill_everything(podium: Podium) -> None:
    """Kill all processes of a home, also those that are started meanwhile, and its chats."""
    kill_at_once([*processes_of(podium), *(chat.pid for chat in podium.chats if runs(chat.pid))])

    def all_killed() -> bool:
        if left := processes_of(podium):
            kill_at_once(left)
        return not left

    wait_until(all_killed, "not all can be killed")


def wait_for_end(home: Path) -> None:
    """Wait until a home's service has ended: it holds a lock for as long as it lives."""
    lock = home / "lock"
    if lock.exists():
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH)


@contextlib.contextmanager
def fresh_home(environment: Mapping[str, str]) -> Iterator[Podium]:
    """The command on a home of its own; nothing of it is left running afterwards."""
    with new_directory("podium-e2e-") as base:
        home = base / "home"
        podium = Podium(home, {**os.environ, "NO_COLOR": "1", "PODIUM_TEST_HOME": str(home), **environment})
        try:
            yield podium
        finally:
            podium.end()
            if (home / "id").exists():
                shutil.rmtree(places_of(home), ignore_errors=True)  # what was moved aside


async def put_to_sleep(home: Path) -> None:
    """Put all agents of a home to sleep by its service."""
    async with asyncio.timeout(TIMEOUT_S), attach(Home(home)) as client:
        assert client is not None, "the service has ended"
        for host in await client.ps():
            if host["agent"]:
                await client.passivate(host["agent"])


class SharedService:
    """A home whose service tests share, one after another. It is started for the first one.

    Args:
        environment: of the service, besides this process's.
    """

    def __init__(self, **environment: str) -> None:
        self._environment = environment
        self._home = contextlib.ExitStack()
        self._first: Podium | None = None
        self._pin: Chat | None = None

    @contextlib.contextmanager
    def lent(self) -> Iterator[Podium]:
        """Lend the command on the home to one test."""
        first = self._first or self._start()
        lent = Podium(first.home, dict(first.environment))
        sizes = lent.log_sizes()
        try:
            yield lent
        finally:
            lent.end_chats()
            lent.print_logs(sizes)
            try:
                asyncio.run(put_to_sleep(first.home))
            except BaseException:
                kill_everything(first)
                self.end()
                raise

    def end(self) -> None:
        """End the service."""
        if self._pin is not None:
            self._pin.kill()
        self._first = self._pin = None
        self._home.close()

    def _start(self) -> Podium:
        self._first = podium = self._home.enter_context(fresh_home(self._environment))
        self._pin = podium.chat(HELLO, "pin")
        assert self._pin.say("hi")[-1]["type"] == "turn_end"
        asyncio.run(put_to_sleep(podium.home))
        return podium


@pytest.fixture
def podium() -> Iterator[Podium]:
    """The command on a fresh home of the test's own."""
    with fresh_home({}) as podium:
        yield podium


@pytest.fixture(scope="package")
def shared_service() -> Iterator[SharedService]:
    """The service that most tests share."""
    service = SharedService()
    yield service
    service.end()


@pytest.fixture
def served(shared_service: SharedService) -> Iterator[Podium]:
    """The command on the home that tests share."""
    with shared_service.lent() as podium:
        yield podium


@pytest.fixture(scope="package")
def shared_service_in_directories() -> Iterator[SharedService]:
    """The same for workspaces in plain directories."""
    service = SharedService(PODIUM_PRESENTATION="dir")
    yield service
    service.end()


@pytest.fixture
def served_in_directories(shared_service_in_directories: SharedService) -> Iterator[Podium]:
    """The command on the home that tests share whose workspaces are plain directories."""
    with shared_service_in_directories.lent() as podium:
        yield podium


@pytest.fixture
async def client(served: Podium) -> AsyncIterator[ServiceClient]:
    """A client of the service that tests share, in this process."""
    async with client_of(served) as client:
        yield client


@contextlib.asynccontextmanager
async def client_of(podium: Podium) -> AsyncIterator[ServiceClient]:
    """Connect to the service of a home; start it if none runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_TEST_HOME", str(podium.home))
        async with connect(Home(podium.home), on_progress=lambda _: None, on_notice=lambda _: None) as client:
            yield client
