"""How long a user waits for a command: processes from their start to their end.

Rows: ``podium --help``; ``podium ps``, which shows 100 agents, on a home of a thousand; ``podium run -m`` on a
service that is up, the agent awake. Each is the ratio of the medians of several runs to a Python that only imports the
library of the command line, with what it needs to read an option: the least that any command takes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.unit.coordinator.cli.cli_home import HomeMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPEC = f"{Path(__file__).parent / 'agents.py'}:Tally"
PODIUM = str(Path(sys.executable).parent / "podium")
RUNS = 15
AGENTS = 1000
TURNS = 5
WITH_TURNS = 100
"""Agents that have turns, among them those that are shown."""
DEADLINE_S = 120


def run() -> list[dict[str, Any]]:
    """Measure the commands, alternating with the floor."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        many, served = Path(folder, "many"), Path(folder, "served")
        _make_agents(many)
        with _awake(served):
            _command_s([PODIUM, "run", SPEC, "--home", str(served), "-m", "count"])  # its class is inspected once
            rows = [
                _row("podium --help", "<= 2", [PODIUM, "--help"]),
                _row(f"podium ps, 100 of {AGENTS} agents", "<= 3", [PODIUM, "ps", "--home", str(many)]),
                _row(
                    "podium run -m, service up, agent awake",
                    "<= 3",
                    [PODIUM, "run", SPEC, "--home", str(served), "-m", "count"],
                ),
            ]
    return rows


def _row(name: str, target: str, command: list[str]) -> dict[str, Any]:
    took, least = [], []
    for _ in range(RUNS):
        took.append(_command_s(command))
        least.append(_command_s([sys.executable, "-c", "import typer._adapters"]))
    took_s, floor_s = statistics.median(took), statistics.median(least)
    return {
        "name": f"{name} / Python with typer (medians of {RUNS})",
        "value": took_s / floor_s,
        "unit": "x",
        "target": target,
        "floor": f"{took_s:.2f} s against {floor_s:.2f} s",
    }


def _command_s(command: list[str]) -> float:
    began_s = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    return time.perf_counter() - began_s


def _make_agents(home: Path) -> None:
    maker = HomeMaker(home)
    for number in range(AGENTS):
        agent = maker.agent(f"counter/{number:04}")
        for turn in range(TURNS if number < WITH_TURNS else 0):
            agent.turn(f"turn {turn}")
        agent.sleep()
    maker.close()


@contextmanager
def _awake(home: Path) -> Iterator[None]:
    """Keep a service up by a chat, whose agent is awake."""
    chat = subprocess.Popen(
        [PODIUM, "run", SPEC, "--home", str(home), "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert chat.stdin is not None
    assert chat.stdout is not None
    with chat:
        chat.stdin.write("count\n")
        chat.stdin.flush()
        _read_until(chat.stdout.readline, '"turn_end"')
        yield
        chat.stdin.close()
        chat.wait(DEADLINE_S)


def _read_until(readline: Callable[[], str], text: str) -> None:
    while text not in (line := readline()):
        if not line:
            raise RuntimeError("the chat ended")
