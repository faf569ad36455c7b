"""A turn of thirty steps with files on a mount, its process killed again and again: the same end, each step run once.

`tests/crash/turn/test_step_deaths.py` kills after each of the steps, with processes that start faster.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.agents.stepped import STEPS
from tests.e2e.conftest import AGENTS

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium

AGENT = f"{AGENTS / 'stepped.py'}:Stepped"


def run(served: Podium, key: str, outside: Path, *, deadly: bool) -> list[dict[str, Any]]:
    """Run the turn, and return the agent's events."""
    outside.mkdir()
    if deadly:
        (outside / "deadly").touch()
    said = served("run", AGENT, "--key", key, "--message", str(outside)).stdout
    assert f"{STEPS} done" in said
    return served.lines("log", f"stepped/{key}", "--all")


def test_a_turn_killed_between_its_steps(served: Podium, tmp_path: Path) -> None:
    (expected,) = [event for event in run(served, "whole", tmp_path / "whole", deadly=False) if is_turn(event)]
    events = run(served, "killed", tmp_path / "killed", deadly=True)
    (found,) = [event for event in events if is_turn(event)]
    assert (tmp_path / "killed" / "ran").read_text().split() == [str(number) for number in range(STEPS)]
    assert sum(event["type"] == "turn.failed" for event in events) == STEPS // 4
    for key in ("tree_id", "state"):
        assert found["payload"][key] == expected["payload"][key]
    assert found["payload"]["steps"]["count"] == STEPS
    assert versions_of_log(served, "killed") == versions_of_log(served, "whole")


def versions_of_log(served: Podium, key: str) -> list[tuple[int, str, str]]:
    """Return number, operation and content of each version of a file that the steps change."""
    versions = json.loads(served("history", f"stepped/{key}", "log", "--json").stdout)
    return [(one["iteration"], one["op"], one["hash"]) for one in versions]


def is_turn(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "turn.committed")
