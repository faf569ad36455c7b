"""What every test gets: no hidden skips, nothing left behind, no unexpected warning in the log.

* Tests in ``tests/fuse`` are marked ``fuse``, those in ``tests/cluster`` and ``tests/e2e`` ``ray`` and ``fuse``.
* With ``CI=true`` a skipped test is a failed one; otherwise skips are listed loudly at the end.
* A FUSE mount below the run's temporary directory that a test leaves behind fails the test. So does a process left by
  a test that may start some (folders ``fuse``, ``crash``, ``cluster``, ``e2e``); everything left at the end of the run
  fails the run. What is found is ended. Processes are known by a variable in their environment.
* A WARNING or worse logged by our packages fails the test, unless the test looks at the log itself (``caplog``).
* Time limits and the dump of all stacks come from ``timeout`` and ``faulthandler_timeout`` in pyproject.toml, unless a
  test has a limit of its own.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import subprocess
import time
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

TESTS = Path(__file__).parent
IN_CI = os.environ.get("CI") == "true"
RUN_MARK = f"PODIUM_TEST_RUN={uuid.uuid4().hex}"
"""Inherited by every process that a test starts, however it detaches itself."""

FOLDER_MARKS = {"fuse": ("fuse",), "cluster": ("ray", "fuse"), "e2e": ("ray", "fuse")}
STARTS_PROCESSES = frozenset({"fuse", "crash", "cluster", "e2e"})

# Deadlines of hypothesis are timed assertions, which a busy machine breaks.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True)
hypothesis.settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=2_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "default"))

# A shell starts what runs in its background with Ctrl-C ignored, and all that is started from there ignores it as well.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of async tests: Podium runs on asyncio alone."""
    return "asyncio"


# -- marks and skips ---------------------------------------------------------------------------------------------------


def folder_of(item: pytest.Item) -> str:
    """The folder right below tests/ that the test is in."""
    return item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""


def no_fuse() -> str | None:
    """Why no file system can be mounted here; None when one can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is missing or not accessible"
    if find_spec("pyfuse3") is None:
        return "pyfuse3 is not installed: make setup"
    return None


def pytest_configure() -> None:
    """Mark this process and all that it starts."""
    name, _, value = RUN_MARK.partition("=")
    os.environ[name] = value


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark by folder, and skip what cannot run here (a failure in CI, see below)."""
    reason = no_fuse()
    for item in items:
        for mark in FOLDER_MARKS.get(folder_of(item), ()):
            item.add_marker(mark)
        if reason and item.get_closest_marker("fuse"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where nothing may be skipped."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and in CI nothing is: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself."""
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, and in CI nothing is: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what did not run."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section(f"{len(skipped)} TESTS DID NOT RUN", sep="!", yellow=True, bold=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test that may take longer than most its time: a dump of all stacks meanwhile can crash the interpreter.

    When its own limit is over, pytest-timeout prints them.
    """
    if item.get_closest_marker("timeout"):
        faulthandler.cancel_dump_traceback_later()


# -- nothing left behind -----------------------------------------------------------------------------------------------


def marked_processes() -> dict[int, str]:
    """Processes of this run but this one: process id to command line. Zombies are not counted."""
    mark = RUN_MARK.encode()
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = Path(entry.path, "environ").read_bytes()
            if mark in environ.split(b"\0"):
                command = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found[int(entry.name)] = command
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def fuse_mounts(below: Path) -> set[str]:
    """FUSE mount points below a directory, in this process's mount namespace."""
    mounts = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if after.startswith("fuse") and Path(point).is_relative_to(below):
            mounts.add(point)
    return mounts


def wait_until_gone(before: dict[int, str], grace_s: float) -> dict[int, str]:
    """Processes of this run that were not there before and do not end within the grace.

    A mount service that several tests share forks servers ahead: what is of its session is its own.
    """
    services = {session_of(pid) for pid in before} - {None, session_of(os.getpid())}
    deadline = time.monotonic() + grace_s
    while left := {
        pid: command
        for pid, command in marked_processes().items()
        if pid not in before and session_of(pid) not in services
    }:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)  # a process that was told to end needs a moment; a clean test never comes here
    return {}


def session_of(pid: int) -> int | None:
    """The session of a process; None if it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def clean_up(processes: dict[int, str], mounts: set[str]) -> None:
    """End what was left, so that one leak fails one test."""
    for mount in mounts:
        subprocess.run(["fusermount3", "-u", "-z", mount], check=False, capture_output=True, timeout=10)
    for pid in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def describe(processes: dict[int, str], mounts: set[str]) -> str:
    """A list of what was left."""
    lines = [f"process {pid}: {command[:200]}" for pid, command in sorted(processes.items())]
    return "\n  ".join(["left behind:", *lines, *(f"mount {mount}" for mount in sorted(mounts))])


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a test that leaves a mount, or a process where tests start some.

    It is set up after fixtures of wider scope and torn down after the test's own, so a cluster that a module shares is
    not a leak. Ray starts workers when it likes: with Ray only the end of the run is checked for processes.
    """
    base = tmp_path_factory.getbasetemp()
    counts_processes = folder_of(request.node) in STARTS_PROCESSES and not request.node.get_closest_marker("ray")
    mounts_before = fuse_mounts(base)
    processes_before = marked_processes() if counts_processes else {}
    yield
    processes = wait_until_gone(processes_before, grace_s=30) if counts_processes else {}
    mounts = fuse_mounts(base) - mounts_before
    if processes or mounts:
        clean_up(processes, mounts)
        pytest.fail(describe(processes, mounts), pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when anything of it is still there."""
    processes = wait_until_gone({}, grace_s=60)
    if processes:
        clean_up(processes, set())
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\nThe run {describe(processes, set())}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# -- log ---------------------------------------------------------------------------------------------------------------


class Collected(logging.Handler):
    """Keeps what was logged at WARNING or above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def no_unexpected_warnings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which our code logged a warning that the test does not look at."""
    if "caplog" in request.fixturenames:
        yield
        return
    handler = Collected()
    loggers = [logging.getLogger(name) for name in ("chronicle", "podium", "coordinator")]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
    if handler.lines:
        pytest.fail("logged, and the test does not use caplog:\n  " + "\n  ".join(handler.lines), pytrace=False)
