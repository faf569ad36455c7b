"""Runs that leave something behind, without workers and with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.project.test_rerun_failed import FEW_PLUGINS

ROOT = Path(__file__).parents[3]

LEAVES = """
import subprocess
from pathlib import Path

def test_leaves_a_process():
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    process.returncode = 0  # no warning about a process that runs
    while not Path(f"/proc/{{process.pid}}/environ").read_bytes():
        pass  # it is in its exec
    {then}
"""


@pytest.mark.parametrize(
    ("options", "then", "said"),
    [
        pytest.param([], "", "The run left behind:", id="no workers"),
        pytest.param(["-n1"], "", "The run of gw0 left behind:", id="a worker"),
        pytest.param(
            ["-n1", "--max-worker-restart=0"], "__import__('os')._exit(1)", "The run left behind:", id="crash"
        ),
    ],
)
def test_a_process_that_is_left_fails_the_run(tmp_path: Path, options: list[str], then: str, said: str) -> None:
    (tmp_path / "conftest.py").write_text("import tests.conftest\ntests.conftest.END_GRACE_S = 0.1\n")
    (tmp_path / "test_it.py").write_text(LEAVES.format(then=then))
    environment = os.environ | {"PYTHONPATH": str(ROOT), **FEW_PLUGINS}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "test_it.py", *options]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout
    assert said in ran.stdout
    assert ": sleep 600" in ran.stdout
