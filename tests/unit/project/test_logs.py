"""One style of logs: events with fields in `podium` and `coordinator`; chronicle, a library, logs with the stdlib."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import structlog

_ROOT = Path(__file__).parents[3]
_LEVELS = {"debug", "info", "warning", "error", "exception"}


def _logged(file: Path) -> list[ast.Call]:
    """Return the calls of a logger of a file."""
    calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    return [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in _LEVELS
        and ast.unparse(call.func.value) in {"_log", "log"}
    ]


def test_events_have_a_name_and_fields() -> None:
    seen = 0
    for package in ("podium", "coordinator"):
        for file in (_ROOT / package).rglob("*.py"):
            where = str(file.relative_to(_ROOT))
            if where != "coordinator/logs.py":
                assert "logging.getLogger" not in file.read_text(), where
            for call in _logged(file):
                [event] = call.args
                assert isinstance(event, ast.Constant), where
                assert isinstance(event.value, str), where
                assert event.value.replace("_", "").isalnum(), f"{where}: {event.value}"
                seen += 1
    assert seen > 50, "the loggers have another name now"


def test_a_warning_of_an_event_is_seen_by_the_tests(caplog: pytest.LogCaptureFixture) -> None:
    structlog.stdlib.get_logger("coordinator.tests").warning("house_on_fire", room="engine")
    assert "event=house_on_fire room=engine" in caplog.text
    assert [record.name for record in caplog.records] == ["coordinator.tests"]
