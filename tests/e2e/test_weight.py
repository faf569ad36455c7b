"""What a service keeps in memory beside its agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.conftest import HELLO, processes_of

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium

UNUSED = ("/dashboard/dashboard.py", "/autoscaler/_private/monitor.py", "/_private/log_monitor.py")
"""Of the programs that ``ray.init`` starts, those that Podium has no use for."""


def test_an_embedded_ray_runs_no_dashboard_autoscaler_or_log_monitor(served: Podium) -> None:
    chat = served.chat(HELLO, "weighed")
    assert chat.say("hi")[-1]["type"] == "turn_end"
    assert processes_of(served, "/raylet/raylet"), "the processes of Ray are not found by their command lines"
    for program in UNUSED:
        assert processes_of(served, program) == [], program
    assert chat.close() == 0
