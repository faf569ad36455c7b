"""An agent whose process dies: its sender is told how, of each try, and where a traceback is."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import AGENTS
from tests.waiting import wait_until

if TYPE_CHECKING:
    import subprocess

    from tests.e2e.conftest import Podium

AGENT = f"{AGENTS / 'deaths.py'}:Deaths"
LOST = "HostLost: its process ended before the turn was committed"
KERNEL_TELLS = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 15)
"""Whether the kernel tells the exit status of a process that is no child."""


def test_each_failed_try_says_how_the_process_ended(served: Podium) -> None:
    limit = "podium ended it, because the turn went on 5 s after its limit of 2 s and blocked the event loop"
    deaths = (
        ("exit", f"{LOST}: exit status 3, os._exit was called", "deaths.py"),
        ("kill", f"{LOST}: killed by SIGKILL (signal 9)" if KERNEL_TELLS else LOST, "try_lost"),
        ("crash", f"{LOST}: killed by SIGSEGV (signal 11)" if KERNEL_TELLS else LOST, "Segmentation fault"),
        ("raise", "Odd: by itself", "deaths.py"),
        ("block", f"{LOST}: {limit}", 'deaths.py", line'),
    )

    def die(how: str) -> subprocess.CompletedProcess[str]:
        return served("run", AGENT, "--key", how, "--message", how, check=False)

    with ThreadPoolExecutor(len(deaths)) as threads:
        ends = list(threads.map(die, (how for how, *_ in deaths)))
    for (how, says, logged), failed in zip(deaths, ends, strict=True):
        assert failed.returncode == ExitCode.TURN_FAILED
        *_, retried, ended, log = failed.stderr.splitlines()
        assert retried == f"attempt 1 failed: {says}. Trying again."
        assert ended.startswith(f"failed: {says}. ")
        path = Path(log.removeprefix("The agent's log says more: "))
        assert logged in path.read_text(), how
    tries = [event["payload"] for event in served.lines("log", "deaths/exit") if event["type"] == "turn.failed"]
    assert [(failed["attempt"], failed["parked"]) for failed in tries] == [(1, False), (2, True)]


def test_a_process_that_dies_while_it_imports_says_how(served: Podium, tmp_path: Path) -> None:
    file = tmp_path / "leaves.py"
    text = "import os\nif not os.environ['AGENT_WORKSPACE'].count('podium-inspect-'):\n    os._exit(7)\n"
    file.write_text(text + (AGENTS / "deaths.py").read_text().replace("from __future__", "# from"))
    failed = served("run", f"{file}:Deaths", "--message", "hi", check=False)
    assert failed.returncode == ExitCode.UNAVAILABLE
    hosts_log = served.home / "logs" / "hosts.log"
    how = "exit status 7, os._exit was called"
    death = f"the agent's process died while it imported {file}: {how}; {hosts_log} says more"
    assert death in failed.stderr
    assert str(file) in hosts_log.read_text()


def test_a_message_is_parked_if_every_process_dies_before_it_is_handled(served: Podium, tmp_path: Path) -> None:
    file, died = tmp_path / "stillborn.py", tmp_path / "died"
    died.mkdir()
    deaths = (AGENTS / "deaths.py").read_text()
    dying = "class Deaths(BaseAgent):\n    made = 0\n\n    def __init__(self):\n        Deaths.made += 1\n"
    dying += "        # The first one is made to check the class.\n"
    dying += f"        if Deaths.made > 1 and len(os.listdir({str(died)!r})) < 2:\n"
    dying += f"            open({str(died)!r} + f'/{{os.getpid()}}', 'x').close()\n            os._exit(4)\n\n"
    dying += "    async def on_failed(self, ctx, message, error):\n"
    dying += "        (ctx.workspace / 'failed.txt').write_text(f\"{message['text']}: {error['message']}\")\n\n"
    file.write_text(deaths.replace("class Deaths(BaseAgent):\n", dying + '    agent_type = "stillborn"\n'))
    failed = served("run", f"{file}:Deaths", "--key", "k", "--message", "hi", check=False)
    assert failed.returncode == ExitCode.TURN_FAILED, failed.stderr
    how = f"{LOST}: exit status 4, os._exit was called"
    assert f"attempt 1 failed: {how}. Trying again." in failed.stderr
    assert f"failed: {how}. " in failed.stderr
    noted = ("cat", "stillborn/k", "failed.txt")
    wait_until(lambda: served(*noted, check=False).returncode == 0, "on_failed did not run")
    assert served(*noted).stdout == f"hi: {how.removeprefix('HostLost: ')}"
    why = served.json("why", "stillborn/k")
    assert (why["pending"], why["parked"], why["last_error"]["attempt"]) == (0, 1, 2)
    file.write_text(
        deaths.replace("class Deaths(BaseAgent):\n", 'class Deaths(BaseAgent):\n    agent_type = "stillborn"\n')
    )
    served("run", f"{file}:Deaths", "--key", "k", "--message", "hi")
    assert served.json("state", "stillborn/k")["turn"] == 2
