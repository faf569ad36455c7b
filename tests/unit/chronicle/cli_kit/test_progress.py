"""Progress of a command on stderr: on a terminal, without colours, and into a pipe."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.terminal import TerminalProcess

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM: Final = """
from chronicle.cli_kit.progress import Progress
with Progress() as progress:
    progress.show("working (1 s)")
    progress.show("working (2 s)")
    progress.show("ending")
"""
COLOUR: Final = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7])m")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_spinner_has_a_colour_unless_the_user_wants_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_color: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    with TerminalProcess([sys.executable, "-c", PROGRAM], tmp_path) as terminal:
        assert terminal.wait() == 0
    assert "ending" in terminal.seen
    assert bool(COLOUR.search(terminal.raw)) == (not no_color)


def test_into_a_pipe_each_step_is_a_line() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert run.stderr.splitlines() == ["working …", "ending …"]
