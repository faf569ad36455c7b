"""Runs tests on a copy of the tree: traced, and then with one change after another.

The copy is the working directory and first on the path of all processes that a test starts, so that they import it.
The checkout is never written to.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tools.mutants import tracing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from types import TracebackType

    from tools.mutants.mutations import Mutant

__all__ = ["Trials", "files_of"]

_PYTEST: Final = ("-n0", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0")
_BASE_TIMEOUT_S: Final = 600.0
_END_GRACE_S: Final = 30.0
"""Time for an interrupted run of tests to end what it began."""
_AT_START: Final = "from tools.mutants import tracing\n\ntracing.start()\n"


def files_of(checkout: Path) -> list[str]:
    """Return the files of a checkout that git has or would take, by their paths in it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
    return sorted(name for name in listed.stdout.split("\0") if (checkout / name).is_file())


class Trials:
    """A copy of a checkout, and runs of its tests. To be used as a context manager; the end removes the copy."""

    def __init__(self, checkout: Path) -> None:
        self._made = Path(tempfile.mkdtemp(prefix="pm-"))
        self.tree = self._made / "tree"
        self.output: Final = self._made / "output"
        """What the last run of tests printed."""
        self._forker: subprocess.Popen[bytes] | None = None
        for name in files_of(checkout):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, self.tree / name)
        (self.tree / "sitecustomize.py").write_text(_AT_START, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._forker is not None:
            self._forker.communicate()
        shutil.rmtree(self._made)

    def trace(self, tests: Sequence[str]) -> tuple[dict[str, dict[str, list[int]]], list[str]]:
        """Run tests on the unchanged copy.

        Returns:
            By test, without its parameters, the lines of functions that it runs, by file, but for tests that fail. And
            the modules that a fork need not import.
        """
        print(f"tracing {len(tests)} tests", flush=True)
        directory = Path(tempfile.mkdtemp(dir=self._made))
        command = [sys.executable, "-m", "pytest", *_PYTEST, "-p", "tools.mutants.plugin", "--lines-to", str(directory)]
        with self.output.open("wb") as output:
            subprocess.run(
                [*command, *tests],
                cwd=self.tree,
                env={**self._environment, tracing.TREE: str(self.tree)},
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        found: dict[str, dict[str, list[int]]] = {}
        for line in (directory / "names").read_text(encoding="utf-8").splitlines():
            number, _, name = line.partition(" ")
            lines = found.setdefault(name.partition("[")[0], {})
            for path, numbers in tracing.lines_in(directory / number, self.tree).items():
                lines[path] = sorted({*lines.get(path, ()), *numbers})
        return found, (directory / "modules").read_text(encoding="utf-8").split()

    def import_before(self, modules: Collection[str]) -> None:
        """Have modules imported in the process that is forked, before the first one."""
        (self._made / "modules").write_text("\n".join(modules), encoding="utf-8")

    def passes(self, tests: Sequence[str], timeout_s: float = _BASE_TIMEOUT_S) -> bool:
        """Whether tests pass within the timeout, in a fork."""
        return self._forked([*_PYTEST, "-x", *tests], timeout_s) == 0

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Change the copy while the context lasts.

        The file's compiled one is removed, as another text may have the same size and time.
        """
        path = self.tree / mutant.path
        before = path.read_bytes()
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_bytes(mutant.applied(before))
        try:
            yield
        finally:
            path.write_bytes(before)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.tree), "CI": ""}

    def _forked(self, arguments: list[str], timeout_s: float) -> int | None:
        """Run pytest in a fork.

        Returns:
            Its exit status; None when its time is over.
        """
        if self._forker is None:
            self._forker = self._started()
        said, answers = self._forker.stdin, self._forker.stdout
        assert said is not None
        assert answers is not None
        said.write(json.dumps(arguments).encode() + b"\n")
        child = int(answers.readline())
        if not select.select([answers], [], [], timeout_s)[0]:
            _end(child)
            answers.readline()
            return None
        return int(answers.readline())

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tools.mutants.forker", str(self._made / "modules"), str(self.output)],
            cwd=self.tree,
            env={**self._environment, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # a line that was read ahead would not be seen by a wait for it
        )


def _end(leader: int) -> None:
    """End a session of processes: tests end what they began, unless the change prevents it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGTERM)
        pidfd = os.pidfd_open(leader)
        try:
            if not select.select([pidfd], [], [], _END_GRACE_S)[0]:
                os.killpg(leader, signal.SIGKILL)
        finally:
            os.close(pidfd)
