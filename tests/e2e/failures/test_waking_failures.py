"""What a user is told when an agent cannot be woken: the error itself, whichever process it was raised in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import Podium

if TYPE_CHECKING:
    from pathlib import Path

AGENT = """
import os

from podium.agent import BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.state import migration


class Note(BaseAgent):
    class State(DeltaState):
        _version = {version}
        text: str = ""
        {more}

    async def on_message(self, ctx, message):
        ctx.state.text += message["text"]
        await ctx.send_message(ctx.state.text)
"""
FAILING = """
        @migration(from_version=2)
        def split(doc):
            raise LookupError("no text")
"""


def test_state_that_cannot_be_loaded(served: Podium, tmp_path: Path) -> None:
    agent = tmp_path / "note.py"

    def run(version: int, more: str = "") -> tuple[int, str]:
        agent.write_text(AGENT.format(version=version, more=more.strip()))
        finished = served("run", f"{agent}:Note", "--message", "a", check=False)
        return finished.returncode, finished.stderr

    assert run(2)[0] == ExitCode.OK
    served("passivate", "note/default")  # a host that runs keeps the code that it has
    code, says = run(3)
    assert code == ExitCode.STATE_REFUSED
    assert "no migration leads from 2 to 3; declare one in Note.State with @migration(from_version=2)" in says
    code, says = run(1)
    assert code == ExitCode.STATE_REFUSED
    assert "the stored state has version 2, but Note.State is at _version = 1; run the newer code" in says
    code, says = run(3, FAILING)
    assert code == ExitCode.STATE_REFUSED
    assert "the migration from version 2 to 3 failed: LookupError: no text" in says


def test_a_message_whose_agent_could_not_be_woken_is_named(served: Podium, tmp_path: Path) -> None:
    agent = tmp_path / "note.py"
    agent.write_text(AGENT.format(version=1, more=""))
    run = ("run", f"{agent}:Note", "--key", "k")
    served(*run, "--message", "one.")
    served("passivate", "note/k")
    agent.write_text(AGENT.format(version=2, more=""))

    failed = served(*run, "--message", "two.", "--json", check=False)
    assert failed.returncode == ExitCode.STATE_REFUSED
    accepted, *_, last = [json.loads(line) for line in failed.stdout.splitlines()]
    two = accepted["message_id"]
    assert last["error"]["type"] == "MigrationMissing"
    assert (last["type"], last["message_id"], last["parked"], last["pending"]) == ("error", two, False, True)
    waits, mend = failed.stderr.splitlines()[-2:]
    assert waits == f"{two} waits in the inbox of note/k and is handled before newer messages."
    assert mend == f"podium retry note/k {two} retries it, podium drop note/k {two} removes it."

    failed = served(*run, "--message", "three.", check=False)
    assert "note/k, at turn 1; messages wait in its inbox: podium inbox note/k" in failed.stderr
    waiting = served.json("inbox", "note/k")["messages"]
    assert [message["message"]["text"] for message in waiting] == ["two.", "three."]
    assert waiting[1]["message_id"] in failed.stderr.splitlines()[-1]

    # Mended: what was dropped is not handled, what waits is handled when it is asked for.
    agent.write_text(AGENT.format(version=1, more=""))
    served("drop", "note/k", two)
    retried = served.json("retry", "note/k", waiting[1]["message_id"])
    assert retried == {"agent": "note/k", "retried": [waiting[1]["message_id"]], "now": True}
    assert served(*run, "--message", "four.").stdout == "one.three.four.\n"


NEEDY = """
import ray

from podium.agent import BaseAgent


class Painter(BaseAgent):
    resources = {resources}

    async def on_message(self, ctx, message):
        assigned = ray.get_runtime_context().get_assigned_resources()
        await ctx.send_message(f"has {{assigned['CPU']:g}} CPUs")
"""


def test_resources_that_no_node_has_are_named_and_those_of_an_edited_class_are_reserved(
    served: Podium, tmp_path: Path
) -> None:
    agent = tmp_path / "painter.py"
    agent.write_text(NEEDY.format(resources={"num_cpus": 1, "GPU": 1000}))
    refused = served("run", f"{agent}:Painter", "--message", "a", check=False)
    assert refused.returncode == ExitCode.UNAVAILABLE
    assert f"no node has what class Painter in {agent} declares: local lacks GPU 1000" in refused.stderr
    why = json.loads(served("why", "painter/default", "--json").stdout)
    assert "local lacks GPU 1000" in why["wake_error"]
    assert why["pending"] == 1
    agent.write_text(NEEDY.format(resources={"num_cpus": 1.5}))
    assert "has 1.5 CPUs" in served("run", f"{agent}:Painter", "--message", "b").stdout
    agent.write_text(NEEDY.format(resources={"num_cpus": 0}))
    wrong = served("run", f"{agent}:Painter", "--message", "c", check=False)
    assert "resources are {'num_cpus': 0}; give a dict of positive numbers" in wrong.stderr
