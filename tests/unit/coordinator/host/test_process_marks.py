"""Marked processes: found and ended, however they detached themselves."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Unavailable
from coordinator.home import Home
from coordinator.host.node.process_marks import ProcessMark, end_marked, take_mark_off
from coordinator.service import connecting
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 60
HOME = f"home-{os.getpid()}"
"""Another one in each run: runs at the same time end each other's processes otherwise."""
MARK = ProcessMark(HOME, "host_a")

WAYS = {
    "a child": "subprocess.Popen(SLEEP)",
    "a session of its own": "subprocess.Popen(SLEEP, start_new_session=True)",
    "an empty environment": "subprocess.Popen(['setsid', '--fork', 'env', '-i', *SLEEP])",
    "a fork without exec": "os.fork() or (os.setsid(), os.fork() and os._exit(0), os.closerange(0, 256), report())",
    "another limit": "subprocess.Popen([sys.executable, '-c', LIMITED])",
}
STARTER = """
import os, subprocess, sys, time

out = {out!r}
SLEEP = [sys.executable, "-c", "import os, time; open({out!r}, 'a').write(str(os.getpid()) + chr(10)); time.sleep(600)"]
LIMITED = (
    "import os, resource, time; resource.setrlimit(resource.RLIMIT_RTTIME, (200_000, 200_000));"
    "open({out!r}, 'a').write(str(os.getpid()) + chr(10)); time.sleep(600)"
)

def report():
    fd = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, b"%d\\n" % os.getpid())
    time.sleep(600)

{put_on}
{way}
{stay}
"""


def started(
    tmp_path: Path, way: str, *, host: str = "host_a", stay: str = "time.sleep(600)", hard: int | None = None
) -> tuple[int, int]:
    """Start a process that marks itself and starts another one; return the ids of both."""
    out = tmp_path / f"pid-{len(list(tmp_path.iterdir()))}"
    put_on = f"from coordinator.host.node.process_marks import ProcessMark; ProcessMark({HOME!r}, {host!r}).put_on()"
    if hard is not None:
        put_on = f"import resource; resource.setrlimit(resource.RLIMIT_RTTIME, ({hard}, {hard})); {put_on}"
    script = STARTER.format(out=str(out), put_on=put_on, way=way, stay=stay)
    process = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[4])
    STARTED.append(process)
    wait_until(lambda: out.exists() and out.read_text().endswith("\n"))
    return process.pid, int(out.read_text())


STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Nothing that a test started goes on after it."""
    yield
    for host in ("host_a", "host_b"):
        end_marked(ProcessMark(HOME, host))
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait(DEADLINE_S)


def lives(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("way", WAYS)
def test_what_a_marked_process_started_ends_with_it(tmp_path: Path, way: str) -> None:
    starter, child = started(tmp_path, WAYS[way])
    other = started(tmp_path, WAYS["a session of its own"], host="host_b")
    assert end_marked(MARK) == 2
    assert not lives(starter)
    assert not lives(child)
    assert all(lives(pid) for pid in other)


def test_what_outlived_the_marked_process_is_found(tmp_path: Path) -> None:
    starter, child = started(tmp_path, WAYS["an empty environment"], stay="")
    STARTED[-1].wait(DEADLINE_S)
    assert not lives(starter)
    assert lives(child)
    assert end_marked(MARK) == 1
    assert not lives(child)


def test_a_process_that_may_not_set_the_limit_is_marked_by_its_environment(tmp_path: Path) -> None:
    pids = started(tmp_path, WAYS["a session of its own"], hard=1_000_000)
    assert end_marked(MARK) == 1, "the starter itself was executed before it had the mark"
    assert [lives(pid) for pid in pids] == [True, False]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_named(tmp_path: Path) -> None:
    pids = started(tmp_path, WAYS["a child"])
    reading, writing = os.pipe()
    other = os.fork()
    if other == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            try:
                end_marked(MARK, deadline_s=0)
            except Unavailable as error:
                os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(other, 0)
    os.close(writing)
    message = os.read(reading, 1000).decode()
    os.close(reading)
    assert f"process {min(pids)}," in message
    assert "runs as another user" in message
    assert all(lives(pid) for pid in pids)


def test_a_mark_of_another_home_is_another_mark(tmp_path: Path) -> None:
    pids = started(tmp_path, WAYS["a child"])
    assert end_marked(ProcessMark(f"copy-of-{HOME}", "host_a")) == 0
    assert all(lives(pid) for pid in pids)


def test_more_processes_than_descriptors_are_ended(tmp_path: Path) -> None:
    many = """
for _ in range(60):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
os.fork() or report()
"""
    pids = started(tmp_path, many)
    few = """
import resource, sys
from coordinator.host.node.process_marks import ProcessMark, end_marked
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
print(end_marked(ProcessMark(*sys.argv[1:])))
"""
    ran = subprocess.run(
        [sys.executable, "-c", few, HOME, "host_a"],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "62\n", ran.stderr
    assert not any(lives(pid) for pid in pids)


def test_a_process_that_was_reaped_while_it_was_looked_at_has_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> tuple[int, int]:
        raise PermissionError

    monkeypatch.setattr(resource, "prlimit", refused)
    monkeypatch.setattr(Path, "read_bytes", lambda _: b"")
    assert not MARK.is_on(os.getpid())


def test_a_service_is_started_without_the_mark_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []

    def popen(*_: object, env: dict[str, str] | None = None, **__: object) -> None:
        given.append(dict(os.environ if env is None else env))

    home = Home(tmp_path / "home").create()
    home.logs.mkdir(exist_ok=True)
    monkeypatch.setenv("PODIUM_HOST", "home/host_a")
    monkeypatch.setattr(subprocess, "Popen", popen)
    connecting._start(home, None, registers=False)
    assert "PODIUM_HOST" not in given[0]
    assert given[0]["PATH"] == os.environ["PATH"]


def test_a_service_that_an_agent_starts_takes_the_mark_off(tmp_path: Path) -> None:
    off = "from coordinator.host.node.process_marks import take_mark_off; take_mark_off()\n"
    pids = started(tmp_path, off + WAYS["a child"])
    assert end_marked(MARK) == 0
    assert all(lives(pid) for pid in pids)
    os.kill(pids[1], signal.SIGKILL)


def test_taking_off_leaves_a_limit_that_is_no_mark() -> None:
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    take_mark_off()
    assert resource.getrlimit(resource.RLIMIT_RTTIME) == before
    assert "PODIUM_HOST" not in os.environ
