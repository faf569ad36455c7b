"""One style of logs: events with fields in `podium` and `coordinator`; chronicle, a library, logs with the stdlib."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

_ROOT = Path(__file__).parents[3]
_LEVELS = {"debug", "info", "warn", "warning", "error", "critical", "fatal", "exception", "log", "msg"}
_LOGGER = re.compile(r"(.*\.)?_?(log|logger)|.*get_logger\(.*\)")
_EVENT = re.compile(r"[a-z]+(_[a-z]+)*")
_OF_LOGS = "coordinator/logs.py"
"""It sets up the stdlib's loggers, for libraries."""


def faults(source: str) -> list[str]:
    """Return the lines of a module that log something else than an event with fields, or by the stdlib."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names) if any(each.name.partition(".")[0] == "logging" for each in names):
                found.append(ast.unparse(node))
            case ast.ImportFrom(module="logging"):
                found.append(ast.unparse(node))
            case ast.Call() if _is_logging(node) and not _is_of_an_event(node):
                found.append(ast.unparse(node))
    return found


def _is_logging(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in _LEVELS
        and _LOGGER.fullmatch(ast.unparse(call.func.value)) is not None
    )


def _is_of_an_event(call: ast.Call) -> bool:
    match call.args:
        case [ast.Constant(value=str(name))]:
            return _EVENT.fullmatch(name) is not None
        case [ast.JoinedStr(values=[_, ast.Constant(value=str(end))])]:  # the subject of a `Poller` is before it
            return _EVENT.fullmatch(f"subject{end}") is not None
    return False


@pytest.mark.parametrize(
    "line",
    [
        '_log.warning("the service is lost")',
        '_log.critical("the service is lost")',
        '_log.warning("Service_lost", home=home)',
        '_log.info("service_lost", home)',
        '_log.info("lost_%s", home)',
        '_log.error(f"{home}: service_lost")',
        "_log.exception()",
        "self._log.warn(text)",
        'structlog.stdlib.get_logger("coordinator").info("it ended")',
        "import logging",
        "import logging.handlers",
        "from logging import getLogger",
    ],
)
def test_what_is_no_event_with_fields_is_found(line: str) -> None:
    assert faults(line) == [line.replace('"', "'")]


def test_events_have_a_name_and_fields() -> None:
    seen = 0
    for package in ("podium", "coordinator"):
        for file in (_ROOT / package).rglob("*.py"):
            where, source = str(file.relative_to(_ROOT)), file.read_text()
            assert faults(source) == [] or where == _OF_LOGS, where
            seen += sum(isinstance(node, ast.Call) and _is_logging(node) for node in ast.walk(ast.parse(source)))
    assert seen > 90, "the loggers have another name now"


# -- the tests' own log ------------------------------------------------------------------------------------------------


def test_a_warning_of_an_event_is_seen_by_the_tests(caplog: pytest.LogCaptureFixture) -> None:
    structlog.stdlib.get_logger("coordinator.tests").warning("house_on_fire", room="engine")
    assert "event=house_on_fire room=engine" in caplog.text
    assert [record.name for record in caplog.records] == ["coordinator.tests"]


_WARNS = """
import logging
import pytest
import structlog

@pytest.fixture(scope="module", autouse=True)
def configuration():
    before = structlog.get_config()
    yield
    assert structlog.get_config() == before, "tests leave it as it was"

def test_an_event():
    structlog.stdlib.get_logger("coordinator.service").warning("house_on_fire", room="engine")

def test_a_library():
    logging.getLogger("chronicle.journal").error("the house is on fire")

def test_expected(caplog):
    structlog.stdlib.get_logger("coordinator.service").warning("house_on_fire", room="engine")

def test_information():
    structlog.stdlib.get_logger("coordinator.service").info("house_built", room="engine")
"""


def test_a_warning_fails_a_test_that_does_not_look_at_the_log(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_WARNS)
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    options = ["-c", "/dev/null", "--rootdir=.", "-rA", "-p", "xdist.plugin", "-p", "anyio.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", *options, "-p", "tests.conftest", "test_it.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    reported = set(re.findall(r"^(PASSED|FAILED|ERROR) test_it\.py::(\w+)", ran.stdout, re.MULTILINE))
    passed = {"test_an_event", "test_a_library", "test_expected", "test_information"}
    failed = {("ERROR", "test_an_event"), ("ERROR", "test_a_library")}  # by the end of their fixture
    assert reported == {("PASSED", name) for name in passed} | failed, ran.stdout
    assert "WARNING coordinator.service: event=house_on_fire room=engine" in ran.stdout
