"""Runs that leave something behind, without workers and with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.leftovers import mounts, name_of_run
from tests.unit.project.test_rerun_failed import FEW_PLUGINS, FINE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

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


# -- runs that are ended -----------------------------------------------------------------------------------------------

HOLDS = """
import json, os, signal, subprocess
from pathlib import Path
from coordinator.home import Home
from coordinator.host.node.workspace_paths import WorkspacePaths
from tests.leftovers import new_directory

def test_holds(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=False)  # as root only
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with new_directory("held-") as made:
        home = Home(made / "home").create()
        workspaces = WorkspacePaths(Path("/tmp"), home.id)
        with workspaces.claimed(home.path):
            paths = [made, home.make_run_dir(), workspaces.directory]
            Path("new").write_text(json.dumps([os.getpid(), process.pid, *map(str, paths)]))
            Path("new").rename("held")
            try:
                while True:
                    signal.pause()
            finally:
                home.remove_run_dir()
"""


class Runs:
    """Runs of pytest with a temporary directory of their own; what one holds is there until it is ended."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.temporary = directory / "t"
        self.temporary.mkdir()
        self.worker = self.process = 0
        self.paths: list[Path] = []
        for name, text in ("conftest.py", "import tests.conftest\n"), ("test_it.py", HOLDS), ("test_fine.py", FINE):
            (directory / name).write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | FEW_PLUGINS | {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)}
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.conftest", *arguments],
            cwd=self.directory,
            env=environment | {"PYTEST_DEBUG_TEMPROOT": str(self.temporary)},
            start_new_session=True,
            stdout=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def holding(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """A run whose test holds a process, a mount, a directory, a run directory and workspaces."""
        with self.start("test_it.py", *options) as run:
            wait_until((self.directory / "held").exists, "the test does not run")
            self.worker, self.process, *paths = json.loads((self.directory / "held").read_text())
            self.paths = [Path(path) for path in paths]
            yield run

    def held(self) -> list[object]:
        """What there is of what the test holds."""
        processes = [self.process] if name_of_run(self.process) else []
        return [*processes, *(path for path in self.paths if path.exists()), *mounts(self.temporary)]

    def next(self) -> str:
        """What another run says, which passes."""
        with self.start("test_fine.py") as run:
            said = run.communicate()[0]
        assert run.returncode == 0, said
        assert "1 passed" in said
        return said


@pytest.mark.parametrize(
    ("number", "option"),
    [(signal.SIGINT, "-n0"), (signal.SIGTERM, "-n0"), (signal.SIGHUP, "-n0"), (signal.SIGTERM, "-n1")],
)
def test_a_run_that_is_interrupted_ends_what_it_began(tmp_path: Path, number: signal.Signals, option: str) -> None:
    runs = Runs(tmp_path)
    with runs.holding(option) as run:
        for _ in range(2 if number == signal.SIGTERM else 1):  # `timeout` does so
            os.killpg(run.pid, number)
        said = run.communicate()[0]
    assert run.returncode == pytest.ExitCode.INTERRUPTED, said
    assert runs.held() == []


@pytest.mark.parametrize(("killed", "option"), [("controller", "-n0"), ("controller", "-n1"), ("all", "-n1")])
def test_the_next_run_ends_what_a_killed_one_left(tmp_path: Path, killed: str, option: str) -> None:
    runs = Runs(tmp_path)
    with runs.holding(option) as run:
        (os.kill if killed == "controller" else os.killpg)(run.pid, signal.SIGKILL)
    runs.next()
    assert runs.held() == []


def test_a_run_ends_what_a_killed_worker_left(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    (tmp_path / "conftest.py").write_text("import tests.conftest\ntests.conftest.END_GRACE_S = 0.1\n")
    with runs.holding("-n1", "--max-worker-restart=0") as run:
        os.kill(runs.worker, signal.SIGKILL)
        said = run.communicate()[0]
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, said
    assert "The run left behind:" in said
    assert runs.held() == []


def test_a_run_lets_one_beside_it_be(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    with runs.holding() as run:
        held = runs.held()
        assert len(held) == 4 + (os.geteuid() == 0)
        runs.next()
        assert runs.held() == held
        os.killpg(run.pid, signal.SIGTERM)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_mount_in_what_pytest_removes_ends_no_run(tmp_path: Path) -> None:
    """Such garbage is what runs before these records left."""
    runs = Runs(tmp_path)
    runs.next()
    disk = next(runs.temporary.glob("pytest-of-*")) / "garbage-1" / "disk"
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], check=True)
    (disk / "file").touch()
    runs.next()
    assert not disk.exists()
