"""A pytest plugin that records which tests of a run failed: ``-p tests.failures --failures-to FILE``.

FILE gets one JSON object a line, read by `tools/rerun_failed.py`:

    {"test": NODE_ID, "report": TEXT}    a test that failed, and its first failure
    {"run": TEXT}                        a failure that is not one test's, such as a module that cannot be collected
    {"exit": STATUS}                     the last line; absent if the run did not come to its end
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures-to", type=Path, metavar="FILE", help="write down there which tests failed")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--failures-to")
    if path is not None and not hasattr(config, "workerinput"):  # workers of xdist report to their controller
        config.pluginmanager.register(FailureLog(path))


class FailureLog:
    """Writes each failure when it happens, so that a run that is killed has them too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: set[str] = set()
        path.write_text("")

    def write(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.tests:  # one that also fails to clean up counts once
            self.tests.add(report.nodeid)
            self.write({"test": report.nodeid, "report": f"in its {report.when}:\n{report.longreprtext}"})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write({"run": f"{report.nodeid} cannot be collected:\n{report.longreprtext}"})

    def pytest_internalerror(self, excrepr: object) -> None:
        self.write({"run": f"internal error of pytest:\n{excrepr}"})

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Any:
        result = yield
        status = int(session.exitstatus)
        if status == pytest.ExitCode.TESTS_FAILED and not self.tests:
            self.write({"run": "the run failed, and no test of it did: see its end"})
        self.write({"exit": status})
        return result
