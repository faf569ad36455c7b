"""A plugin of pytest: ``-p tools.mutants.plugin --lines-to DIRECTORY`` records the lines that each test runs.

Those that its fixtures run do not count, except in processes that they start: a server works for the test. What test
*n* of the run runs is in the file ``n``, ``names`` has the ids of those that passed, and ``modules`` the names of the
imported modules of others, for `tools.mutants.forker`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from tools.mutants import tracing

if TYPE_CHECKING:
    from collections.abc import Generator

_LEFT_OUT: Final = (*tracing.PACKAGES, "__main__", "conftest", "examples", "sitecustomize", "tests", "tools", "xdist")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--lines-to", type=Path, metavar="DIRECTORY", required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Record the tests of this run."""
    config.pluginmanager.register(_Recorder(config.getoption("--lines-to")))


class _Recorder:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0

    def pytest_runtest_setup(self) -> None:
        tracing.record_in_children(str(self._directory / str(self._count)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        tracing.record(str(self._directory / str(self._count)))
        try:
            result = yield
        finally:
            tracing.record("")
        with (self._directory / "names").open("a", encoding="utf-8") as file:
            file.write(f"{self._count} {item.nodeid}\n")
        self._count += 1
        return result

    def pytest_sessionfinish(self) -> None:
        names = [
            name
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] not in _LEFT_OUT
            and not isinstance(getattr(module, "__loader__", None), AssertionRewritingHook)  # pytest imports plugins
        ]
        (self._directory / "modules").write_text("\n".join(names), encoding="utf-8")
