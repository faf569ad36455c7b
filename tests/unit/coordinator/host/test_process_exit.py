"""How a process that is no child ended: from the kernel, and from the last words that it left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import ManualClock
from coordinator.host.node.process_exit import (
    OomKills,
    WatchedProcess,
    computes,
    describe_end,
    last_culprit,
    last_words,
    leave_last_words,
    own_bytes,
)
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

KERNEL_TELLS = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 15)
"""Whether the kernel tells the exit status of a process that is no child."""
DEADLINE_S = 60.0


@pytest.fixture
def orphan() -> subprocess.Popen[str]:
    """A process that starts another one, whose exit status it drops, and says its id."""
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    exec(sys.stdin.readline())\n"
        "    os._exit(0)\n"
        "print(pid, flush=True)\n"
        "while True:\n"
        "    time.sleep(60)\n"
    )
    return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("os._exit(3)", "exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL (signal 9)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV (signal 11)"),
    ],
)
def test_the_status_of_a_process_that_another_one_reaps(orphan: subprocess.Popen[str], code: str, says: str) -> None:
    with orphan:
        assert orphan.stdin is not None
        assert orphan.stdout is not None
        watched = WatchedProcess(int(orphan.stdout.readline()))
        assert watched.wait_status(0) is None, "it lives"
        orphan.stdin.write(code + "\n")
        orphan.stdin.flush()
        status = watched.wait_status(DEADLINE_S)
        watched.close()
        orphan.kill()
    assert describe_end(status, oom=False, words=None) == (says if KERNEL_TELLS else None)


@pytest.mark.skipif(not KERNEL_TELLS, reason="the kernel tells no exit status of other processes' children")
def test_the_status_of_a_zombie_is_told_when_its_parent_reaps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        watched = WatchedProcess(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
        asked = watched._status

        def ask_then_reap() -> int | None:
            status = asked()
            process.wait(DEADLINE_S)
            return status

        monkeypatch.setattr(watched, "_status", ask_then_reap)
        status = watched.wait_status(0)
        watched.close()
    assert describe_end(status, oom=False, words=None) == "killed by SIGKILL (signal 9)"


def test_a_process_that_is_gone_cannot_be_watched() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(DEADLINE_S)
    with pytest.raises(ProcessLookupError):
        WatchedProcess(process.pid)


def test_lack_of_memory_is_suspected_only_where_it_can_be_the_reason() -> None:
    suspect = "the kernel was killing processes for lack of memory at that time"
    assert describe_end(signal.SIGKILL, oom=True, words=None) == f"killed by SIGKILL (signal 9); {suspect}"
    assert describe_end(None, oom=True, words=None) == suspect
    assert describe_end(signal.SIGSEGV, oom=True, words=None) == "killed by SIGSEGV (signal 11)"
    assert describe_end(3 << 8, oom=True, words=None) == "exit status 3"
    assert describe_end(None, oom=False, words=None) is None
    assert describe_end(75 << 8, oom=True, words="podium ended it") == "podium ended it"


def test_kills_for_lack_of_memory_count_for_half_a_minute() -> None:
    clock = ManualClock()
    killed = [4]
    kills = OomKills(lambda: killed[0], clock.monotonic_s)
    assert not kills.lately()
    killed[0] = 5
    assert kills.lately()
    for _ in range(14):
        clock.advance(2.0)
        kills.sample()
        assert kills.lately()
    for _ in range(4):
        clock.advance(2.0)
        kills.sample()
    assert not kills.lately()


def test_the_first_last_words_count_and_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "host_1"
    assert last_words(path) is None
    leave_last_words(path, "because")
    leave_last_words(path, "exit status 75")
    assert last_words(path) == "because"
    assert last_words(path) is None
    leave_last_words(tmp_path / "none" / "host_1", "nowhere")


def test_os_exit_says_who_called_it(tmp_path: Path) -> None:
    words = tmp_path / "words"
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from coordinator.host.node.process_exit import tell_of_os_exit\n"
        "tell_of_os_exit(Path(sys.argv[1]), lambda: 'hello/careless')\n"
        "if os.fork() == 0:\n    os._exit(0)\n"
        "os.wait()\n"
        "def careless():\n    os._exit(3)\n"
        "careless()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(words)], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 3
    assert "in careless" in ended.stderr
    assert ended.stderr.count("was called") == 1, "a forked child ends with it in order"
    assert last_words(words) == "exit status 3, os._exit was called"
    assert last_culprit(words) == "hello/careless"


def test_the_memory_of_a_process_is_what_it_has_for_itself() -> None:
    script = "import sys; kept = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = own_bytes(process.pid)
        assert found is not None
        assert 64 << 20 < found < 128 << 20
        process.communicate("")
    assert own_bytes(process.pid) is None


async def test_a_process_computes_unless_it_waits_or_is_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:  # noqa: ASYNC220  its start is short
        try:
            assert computes(process.pid)
            process.send_signal(signal.SIGSTOP)
            await until(lambda: not computes(process.pid))
        finally:
            process.kill()
    assert computes(os.getpid())
