"""Runs of CI: which failures are run again, and what becomes of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", {names})
def test_passes_the_second_time(name):
    before = Path(f"seen-{{name}}")
    first = not before.exists()
    before.touch()
    assert not first, "the machine was slow"
"""
FEW_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-c /dev/null --rootdir=. -p xdist.plugin"}
"""The import of the others takes longer than all else these runs do."""
FINE = "def test_fine():\n    pass\n"


class Ran:
    """A run of pytest and what `rerun_failed` made of it."""

    def __init__(self, folder: Path, test: str, *options: str) -> None:
        (folder / "test_it.py").write_text(test)
        environment = os.environ | {"PYTHONPATH": str(ROOT), **FEW_PLUGINS}
        pytest_command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.failures",
            "--failures-to=failures",
            "test_it.py",
            *options,
        ]

        def ran(command: list[str]) -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

        self.first = ran(pytest_command).returncode
        again = ran([sys.executable, str(ROOT / "tools/rerun_failed.py"), "failures"])
        self.code, self.output = again.returncode, again.stdout + again.stderr

    @property
    def tests_run_again(self) -> int:
        return self.output.count("once more, alone: ")


def test_what_passes_alone_is_flaky_and_does_not_fail_the_run(tmp_path: Path) -> None:
    ran = Ran(tmp_path, FINE + FLAKY.format(names=["a b[1]", "b", "c"]))
    assert (ran.first, ran.code, ran.tests_run_again) == (1, 0, 3), ran.output
    assert ran.output.count("\nFLAKY test_it.py::test_passes_the_second_time[") == 3
    assert "the machine was slow" in ran.output


def test_failures_in_workers_are_run_again_without(tmp_path: Path) -> None:
    ran = Ran(tmp_path, FINE + FLAKY.format(names=["a b[1]", "b"]), "-n2")
    assert (ran.first, ran.code, ran.tests_run_again) == (1, 0, 2), ran.output
    assert "FLAKY test_it.py::test_passes_the_second_time[a b[1]]: " in ran.output


def test_more_than_three_fail_the_run(tmp_path: Path) -> None:
    ran = Ran(tmp_path, FLAKY.format(names=list("abcd")))
    assert (ran.first, ran.code, ran.tests_run_again) == (1, 1, 0), ran.output


def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    ran = Ran(tmp_path, FLAKY.format(names=["a"]) + "def test_broken():\n    raise ValueError\n")
    assert (ran.first, ran.code, ran.tests_run_again) == (1, 1, 2), ran.output
    assert "FLAKY test_it.py::test_passes_the_second_time[a]" in ran.output
    assert "FAILED test_it.py::test_broken: twice" in ran.output


def test_a_failed_set_up_and_a_failed_clean_up_of_one_test_count_once(tmp_path: Path) -> None:
    fixture = "import pytest\n@pytest.fixture\ndef broken():\n    yield\n    raise ValueError\n"
    ran = Ran(tmp_path, fixture + "def test_it(broken):\n    raise KeyError\n")
    assert (ran.first, ran.code, ran.tests_run_again) == (1, 1, 1), ran.output


@pytest.mark.parametrize(
    ("test", "first", "said"),
    [
        pytest.param("import nothing_of_this_name", 2, "cannot be collected", id="a module that cannot be imported"),
        pytest.param("import os\ndef test_end():\n    os._exit(1)", 1, "did not come to its end", id="a crash"),
        pytest.param("", 5, "exit code 5", id="no test"),
    ],
)
def test_what_is_no_test_s_failure_fails_the_run(tmp_path: Path, test: str, first: int, said: str) -> None:
    ran = Ran(tmp_path, test)
    assert (ran.first, ran.code, ran.tests_run_again) == (first, 1, 0), ran.output
    assert said in ran.output


@pytest.mark.parametrize(
    ("test", "code"),
    [
        pytest.param(FINE, 1, id="by tests that passed"),
        pytest.param(FLAKY.format(names=["a"]), 0, id="by one that failed, and leaves nothing when it passes"),
    ],
)
def test_what_is_left_behind_at_the_end_of_a_run(tmp_path: Path, test: str, code: int) -> None:
    """A test that fails halfway may leave processes; its run alone is checked for them as well."""
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "def pytest_sessionfinish(session):\n"
        "    if not Path('left').exists():\n"
        "        Path('left').touch()\n"
        "        session.exitstatus = 1\n"
    )
    ran = Ran(tmp_path, test)
    assert (ran.first, ran.code) == (1, code), ran.output
    assert ("no test of it did" in ran.output) is bool(code)
