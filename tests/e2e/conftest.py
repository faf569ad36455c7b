"""The real command, as a user runs it: a home, one-shot runs and chats over a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.home import Home
from coordinator.host.workspace_paths import WorkspacePaths
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
HELLO = f"{EXAMPLES / 'hello.py'}:HelloAgent"
TIMEOUT_S = 120


class Chat:
    """A running ``podium run --json`` without ``--message``: one line in, one message; frames come back."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, text: str) -> None:
        """Write a message without waiting for its frames."""
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def frame(self) -> dict[str, Any]:
        """Read the next frame."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
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
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def kill(self) -> None:
        """End the client as a kill does; harmless when it has ended."""
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Podium:
    """The command on one home."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.home = home
        self.environment = environment
        self._chats: list[Chat] = []

    def __call__(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        finished = subprocess.run(
            [*command(), *arguments, "--home", str(self.home)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert not check or finished.returncode == 0, finished.stderr
        return finished

    def json(self, *arguments: str) -> Any:
        """Run a command with ``--json`` and return what it printed."""
        return json.loads(self(*arguments, "--json").stdout)

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command with ``--json`` that prints an object a line."""
        return [json.loads(line) for line in self(*arguments, "--json").stdout.splitlines()]

    def chat(self, spec: str, key: str) -> Chat:
        """Begin a chat."""
        log = (self.home.parent / "chat.log").open("a")
        with log:
            process = subprocess.Popen(
                [*command(), "run", spec, "--key", key, "--json", "--home", str(self.home)],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        chat = Chat(process)
        self._chats.append(chat)
        return chat

    def end(self) -> None:
        """End the chats that a failed test left, and wait for the service to end."""
        for chat in self._chats:
            chat.kill()
        wait_for_end(self.home)
        for log in sorted((self.home / "logs").glob("*")):  # pytest shows it with a failed test
            print(f"-- {log.name}", *log.read_text(errors="replace").splitlines()[-40:], sep="\n")


def command() -> list[str]:
    """The installed command of this interpreter's environment."""
    return [str(Path(sys.executable).parent / "podium")]


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
    """Kill all processes of a home, also those that are started meanwhile."""
    kill_at_once(processes_of(podium))

    def all_killed() -> bool:
        if left := processes_of(podium):
            kill_at_once(left)
        return not left

    wait_until(all_killed, "not all can be killed")


@pytest.fixture
def podium() -> Iterator[Podium]:
    """The command on a fresh home; nothing of it is left running afterwards."""
    base = Path(tempfile.mkdtemp(prefix="podium-e2e-"))
    home = base / "home"
    podium = Podium(home, {**os.environ, "NO_COLOR": "1", "PODIUM_TEST_HOME": str(home)})
    try:
        yield podium
    finally:
        podium.end()
        if (home / "id").exists():
            shutil.rmtree(places_of(home), ignore_errors=True)  # what was moved aside
        shutil.rmtree(base)


def wait_for_end(home: Path) -> None:
    """Wait until a home's service has ended: it holds a lock for as long as it lives."""
    import fcntl

    lock = home / "lock"
    if lock.exists():
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
