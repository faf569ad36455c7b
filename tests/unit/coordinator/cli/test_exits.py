from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import chronicle.errors
import podium.errors
import podium.state.errors
from coordinator.cli.exits import EXITS, ExitCode, exit_code, exit_code_of_frame
from coordinator.service.client import ServiceError, ServiceRefused
from podium.errors import AgentFileBroken, AgentLoadError

if TYPE_CHECKING:
    from types import ModuleType


def test_every_code_has_a_meaning() -> None:
    assert set(EXITS.meanings) == set(ExitCode)


def test_the_documentation_has_the_table() -> None:
    text = (Path(__file__).parents[4] / "docs" / "cli.md").read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert table == EXITS.markdown_rows()


@pytest.mark.parametrize("module", [chronicle.errors, podium.errors])
def test_no_error_of_ours_is_a_bug(module: ModuleType) -> None:
    for kind in (getattr(module, name) for name in module.__all__):
        assert any(base in EXITS.errors for base in kind.__mro__), kind


def test_the_nearest_ancestor_decides() -> None:
    class Special(AgentFileBroken):
        pass

    assert exit_code(Special("x")) is ExitCode.FILE_BROKEN
    assert exit_code(AgentLoadError("x")) is ExitCode.LOAD_ERROR
    assert exit_code(FileNotFoundError("x")) is ExitCode.OS_ERROR
    assert exit_code(BrokenPipeError("x")) is ExitCode.BROKEN_PIPE
    assert exit_code(ZeroDivisionError("x")) is ExitCode.BUG


def test_an_error_frame_names_its_error() -> None:
    assert exit_code_of_frame("Cancelled") is ExitCode.TURN_CANCELLED
    assert exit_code_of_frame("ValueError") is ExitCode.TURN_FAILED
    assert exit_code_of_frame("NotFound") is ExitCode.TURN_FAILED  # an exception of the agent's own, by that name
    assert exit_code_of_frame("PodiumError") is ExitCode.TURN_FAILED
    assert exit_code_of_frame("EXITS") is ExitCode.TURN_FAILED


def test_errors_of_state_are_known_by_name() -> None:
    for name in podium.state.errors.__all__:
        assert exit_code_of_frame(name) is ExitCode.STATE_REFUSED


def test_errors_of_the_service_are_known_by_name() -> None:
    assert exit_code(ServiceError("gone")) is ExitCode.UNAVAILABLE
    assert exit_code(ServiceRefused("InboxFull", "full")) is ExitCode.CONFLICT
    assert exit_code(ServiceRefused("AgentFileBroken", "broken")) is ExitCode.FILE_BROKEN
    assert exit_code(ServiceRefused("Surprise", "what")) is ExitCode.UNAVAILABLE
