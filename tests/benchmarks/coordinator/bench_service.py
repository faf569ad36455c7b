"""What a running service costs: memory beside its agents, and time for a command that sends it a message.

Rows:

* proportional memory (PSS) of a service with three agents awake, one warm host included, against a plain ``ray.init``
  with as many bare actors as it has (coordinator, node manager, four hosts), its driver included;
* ``podium run -m`` on a service that runs, a process from its start to its end, with one message and with ten, against
  a Python process that imports the agent's file, which is what the command saves by asking the service.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AGENT = Path(__file__).parent / "agents.py"
SPEC = f"{AGENT}:Tally"
PODIUM = Path(sys.executable).parent / "podium"
RUNS = 9
AGENTS = ("a", "b", "c")
ACTORS = 6
"""Coordinator, node manager, three hosts in use and a warm one."""
DEADLINE_S = 120
PLAIN_RAY = f"""
import sys
import ray
ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20,
         _temp_dir=sys.argv[1])

@ray.remote(num_cpus=0)
class Bare:
    def ping(self):
        return 1

actors = [Bare.remote() for _ in range({ACTORS})]
ray.get([actor.ping.remote() for actor in actors])
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def _running(command: list[str], ready: str, stream: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until its input ends, from the moment that it says something on one of its outputs."""
    others = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: subprocess.PIPE}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **others)  # type: ignore[call-overload]
    try:
        for line in getattr(process, stream):
            if ready in line:
                break
        else:
            raise RuntimeError(f"{command} ended with {process.wait()}")
        yield process
    finally:
        process.stdin.close()
        process.wait(DEADLINE_S)
        getattr(process, stream).close()


def _below(pid: int) -> set[int]:
    """Return a process and its descendants."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended meanwhile
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _pss_mb(pids: set[int]) -> float:
    total_kb = 0
    for pid in pids:
        try:
            sizes = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:  # it ended meanwhile
            continue
        total_kb += int(size[1]) if (size := re.search(r"^Pss:\s+(\d+)", sizes, re.MULTILINE)) else 0
    return total_kb / 1024


def processes_of_home(home: Path) -> set[int]:
    """Return the processes of a home's service: what descends from it or names its directories."""
    marks = (f"--home\0{home}\0".encode(), str(home).encode(), str(Home(home).run_dir).encode())
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if any(mark in line for mark in marks) and str(PODIUM).encode() not in line:
                found |= _below(int(entry.name))
    return found


def _run_s(home: Path, key: str, messages: int) -> float:
    sent = [part for _ in range(messages) for part in ("-m", "count")]
    began_s = time.perf_counter()
    subprocess.run(
        [str(PODIUM), "run", SPEC, "--home", str(home), "--key", key, *sent],
        check=True,
        capture_output=True,
        timeout=DEADLINE_S,
    )
    return time.perf_counter() - began_s


def _import_s() -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, str(AGENT)], check=True, timeout=DEADLINE_S)
    return time.perf_counter() - began_s


def _warm(home: Path) -> None:
    """Wait until a host is warm again, so that all measurements have as many processes."""
    wanted = ACTORS - 2
    hosts = "ray::HostActor"
    _wait_until(lambda: sum(hosts in _line_of(pid) for pid in processes_of_home(home)) >= wanted, "no host became warm")


def _wait_until(true: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(problem)
        time.sleep(0.1)


def _line_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _measure(base: Path) -> list[dict[str, Any]]:
    home = base / "home"
    with _running([sys.executable, "-c", PLAIN_RAY, str(base / "ray")], "ready", "stdout") as ray:
        plain_mb = _pss_mb(_below(ray.pid))
    with _running([str(PODIUM), "run", SPEC, "--home", str(home), "--key", AGENTS[0]], "tally/", "stderr"):
        for key in AGENTS:
            _run_s(home, key, 1)
        _warm(home)
        service_mb = _pss_mb(processes_of_home(home))
        imports, ones, tens = [], [], []
        for _ in range(RUNS):
            imports.append(_import_s())
            ones.append(_run_s(home, AGENTS[0], 1))
            tens.append(_run_s(home, AGENTS[0], 10))
    _wait_until(lambda: not Home(home).service_alive(), "the service did not end")
    floor, one, ten = (statistics.median(values) for values in (imports, ones, tens))
    plain = f"ray.init with {ACTORS} bare actors"
    imported = "importing the agent's file"
    return [
        _row(f"memory of {plain}", plain_mb, "MB", ""),
        _row(f"memory of a service with {len(AGENTS)} agents awake", service_mb, "MB", "", "<= 400"),
        _row("service / plain Ray", service_mb / plain_mb, "x", plain, "<= 1.1"),
        _row(f"a process importing the agent's file (median of {RUNS})", floor * 1e3, "ms", ""),
        _row("podium run -m on a running service", one * 1e3, "ms", ""),
        _row("podium run -m / that import", one / floor, "x", imported, "<= 2.0"),
        _row("podium run with ten messages", ten * 1e3, "ms", ""),
        _row("podium run with ten / that import", ten / floor, "x", imported, "<= 2.5"),
    ]


def _row(name: str, value: float, unit: str, floor: str, target: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "target": target, "floor": floor}


def run() -> list[dict[str, Any]]:
    """Measure and return the rows."""
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as directory:
        return _measure(Path(directory))
