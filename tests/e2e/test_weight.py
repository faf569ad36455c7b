"""What a service keeps in memory beside its agents."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.ray.embedded import worker_template
from tests.e2e.conftest import AGENTS, HELLO, kill_at_once, processes_of, text_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium

UNUSED = (
    "/dashboard/dashboard.py",
    "/autoscaler/_private/monitor.py",
    "/_private/log_monitor.py",
    "ray::DashboardAgent",
    "ray::RuntimeEnvAgent",
)
"""Of the programs that ``ray.init`` starts, those that Podium has no use for."""


def test_an_embedded_ray_runs_no_dashboard_autoscaler_or_log_monitor(served: Podium) -> None:
    chat = served.chat(HELLO, "weighed")
    assert chat.say("hi")[-1]["type"] == "turn_end"
    assert processes_of(served, "/raylet/raylet"), "the processes of Ray are not found by their command lines"
    for program in UNUSED:
        assert processes_of(served, program) == [], program
    assert chat.close() == 0


def test_a_service_loads_no_library_of_rays_dashboard(served: Podium) -> None:
    (service,) = processes_of(served, "coordinator.service.daemon")
    mapped = Path(f"/proc/{service}/maps").read_text()
    assert "/ray/_raylet" in mapped
    for library in ("/aiohttp/", "/grpc/", "/opencensus/", "/opentelemetry/"):
        assert library not in mapped, library


def test_an_agents_process_has_no_library_of_a_model_vendor(served: Podium) -> None:
    chat = served.chat(f"{AGENTS / 'weighed.py'}:Weighed", "vendors")
    frames = chat.say("podium openai anthropic httpx2")
    assert text_of(frames) == "podium"
    assert chat.close() == 0


def test_an_agents_process_imports_nothing_that_all_of_them_could_share(served: Podium) -> None:
    chat = served.chat(f"{AGENTS / 'weighed.py'}:Weighed", "shares")
    loaded = set(text_of(chat.say("all")).split())
    assert chat.close() == 0
    program = f"import sys; from {worker_template.__name__} import _import_all; _import_all(); print(*sys.modules)"
    shared = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "coordinator.ray.host_actor" in shared
    assert loaded.difference(shared) == {"weighed"}


def test_a_service_with_three_agents_awake_has_400_mb(podium: Podium) -> None:
    chats = [podium.chat(HELLO, key) for key in ("one", "two", "three")]
    for chat in chats:
        assert chat.say("hi")[-1]["type"] == "turn_end"
    wait_until(lambda: len(processes_of(podium, "ray::HostActor")) == 4, "no host became warm")
    sizes = {pid: pss_mb(pid) for pid in processes_of(podium)}
    assert len(sizes) > 12, "processes are not found"
    assert sum(sizes.values()) <= 400
    assert all(chat.close() == 0 for chat in chats)


def test_hosts_are_forked_from_a_template_and_start_without_it(served: Podium) -> None:
    template, *_ = parents = processes_of(served, "podium worker template")
    served("run", HELLO, "--key", "forked", "-m", "hi")
    hosts = processes_of(served, "ray::HostActor")
    assert hosts
    assert {parent_of(host) for host in hosts} == {template}
    scores = {oom_score_of(host) for host in hosts}
    kill_at_once(parents)
    kill_at_once(hosts)
    served("run", HELLO, "--key", "forked", "-m", "hi")
    hosts = processes_of(served, "ray::HostActor")
    assert {parent_of(host) for host in hosts} & {template} == set()
    assert {oom_score_of(host) for host in hosts} == scores, "the kernel would end other processes first"
    assert served("verify").returncode == 0


def pss_mb(pid: int) -> float:
    """Return the memory of a process; what it shares is divided by the number of those that have it. 0 if it ended."""
    with suppress(OSError):
        if size := re.search(r"^Pss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE):
            return int(size[1]) / 1024
    return 0


def parent_of(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def oom_score_of(pid: int) -> int:
    """Return how much sooner the kernel ends a process when memory is short."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())
