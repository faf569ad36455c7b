"""What a user is told when an agent cannot be woken: the error itself, whichever process it was raised in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import HELLO, Podium

if TYPE_CHECKING:
    from collections.abc import Iterator
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


@pytest.fixture
def served(podium: Podium) -> Iterator[Podium]:
    """The command on a home whose service stays up meanwhile."""
    chat = podium.chat(HELLO, "stays")
    chat.say("hi")
    yield podium
    assert chat.close() == ExitCode.OK


def test_state_that_cannot_be_loaded(served: Podium, tmp_path: Path) -> None:
    agent = tmp_path / "note.py"

    def run(version: int, more: str = "") -> tuple[int, str]:
        agent.write_text(AGENT.format(version=version, more=more.strip()))
        finished = served("run", f"{agent}:Note", "--message", "a", check=False)
        last = [line for line in finished.stderr.splitlines() if line.startswith("podium: ")]
        return finished.returncode, "\n".join(last)

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
