"""What every test gets: no hidden skips, nothing left behind, no unexpected warning in the log.

* Tests in ``tests/fuse`` are marked ``fuse``, those in ``tests/cluster`` and ``tests/e2e`` ``ray`` and ``fuse``.
* With ``CI=true`` a skipped test is a failed one; otherwise skips are listed loudly at the end.
* A mount below the run's temporary directory that a test leaves behind fails the test. So does a process left by
  a test that may start some (folders ``fuse``, ``crash``, ``cluster``, ``e2e``, ``npm``); everything left at the end of
  the run fails the run. What is found is ended, at the end of an interrupted run, too; what a killed run left, the next
  run ends. See `tests.leftovers`.
* Under pytest-xdist a worker gets whole modules, and the modules whose tests start Ray in three parts: see `ByModule`.
* A WARNING or worse logged by our packages fails the test, unless the test looks at the log itself (``caplog``).
* In ``tests/crash`` and ``tests/stateful`` files are in memory, and syncs by Python code do nothing: see `tmp_path` and
  `no_syncs`.
* Time limits and the dump of all stacks come from ``timeout`` and ``faulthandler_timeout`` in pyproject.toml, unless a
  test has a limit of its own.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import signal
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import structlog
from xdist.scheduler import LoadScopeScheduling

from tests import leftovers
from tests.leftovers import describe, marked_processes, mounts, wait_until_gone
from tests.memory import directory_in_memory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.s3_server import S3Server

TESTS = Path(__file__).parent
IN_CI = os.environ.get("CI") == "true"
FOLDER_MARKS = {"fuse": ("fuse",), "cluster": ("ray", "fuse"), "e2e": ("ray", "fuse")}
REPEAT_STORIES = frozenset({"crash", "stateful"})
STARTS_PROCESSES = frozenset({"fuse", "crash", "cluster", "e2e", "npm"})

# Deadlines of hypothesis are timed assertions, which a busy machine breaks.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True)
hypothesis.settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=2_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "default"))

# Lines of the log as they are by default, but with plain tracebacks: with all variables, each takes 0.05 s.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

# A shell starts what runs in its background with Ctrl-C ignored, and all that is started from there ignores it as well.
signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt(number: int, _: object) -> None:
    """Interrupt the run as Ctrl-C does, by what ends processes otherwise; `timeout` says it twice."""
    signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt


ENDS_RUNS = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
for each in ENDS_RUNS:
    signal.signal(each, interrupt)
# A child of a test's is in no run of its own, which it could end.
os.register_at_fork(after_in_child=lambda: [signal.signal(each, signal.SIG_DFL) for each in ENDS_RUNS])


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of async tests: Podium runs on asyncio alone."""
    return "asyncio"


# -- workers -----------------------------------------------------------------------------------------------------------


class ByModule(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives whole modules to workers, in the order of collection, and those that start Ray in three parts.

    A module's fixtures are set up once. The modules of ``e2e`` share one service; those of its folder ``gateway`` and
    of ``cluster`` have services of their own. Each part is long and waits for much of its time, so they are run beside
    each other and all other modules: one after the other would leave the cores idle, and end last.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        folder = folder_of(TESTS.parent / module)
        if "ray" not in FOLDER_MARKS.get(folder, ()):
            return module
        return f"{folder}, gateway" if "/gateway/" in module else folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule:
    """Say which worker runs what, whatever ``--dist`` is."""
    return ByModule(config, log)


def worker_id(config: pytest.Config) -> str | None:
    """The id of this worker of pytest-xdist; None in a controller and in a run without workers."""
    workerinput = getattr(config, "workerinput", None)
    return workerinput["workerid"] if workerinput else None


# -- marks and skips ---------------------------------------------------------------------------------------------------


def folder_of(path: Path) -> str:
    """The folder right below tests/ that a module is in."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


def no_fuse() -> str | None:
    """Why no file system can be mounted here; None when one can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is missing or not accessible"
    if find_spec("pyfuse3") is None:
        return "pyfuse3 is not installed: make setup"
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Mark all processes that this one starts, and end what runs that were killed have left."""
    worker = worker_id(config)
    leftovers.mark_this_run(worker)
    if worker is None:
        leftovers.clear_runs_that_are_over()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark by folder, leave out what was not asked for, and skip what cannot run here (a failure in CI, see below)."""
    if "live" not in config.option.markexpr:
        live = [item for item in items if item.get_closest_marker("live")]
        config.hook.pytest_deselected(items=live)
        items[:] = [item for item in items if item not in live]
    reason = no_fuse()
    for item in items:
        for mark in FOLDER_MARKS.get(folder_of(item.path), ()):
            item.add_marker(mark)
        if reason and item.get_closest_marker("fuse"):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Keep modules and tests out of garbage collections, of which some tests make many."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Do the same with what a module of tests imported and left: a collection took half a second behind thousands."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


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


@pytest.fixture(autouse=True)
def nothing_left_behind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, in_memory: Path | None
) -> Iterator[None]:
    """Fail a test that leaves a mount, or a process where tests start some.

    It is set up after fixtures of wider scope and torn down after the test's own, so a cluster that a module shares is
    not a leak. Ray starts workers when it likes: with Ray only the end of the run is checked for processes.
    """
    base = in_memory or tmp_path_factory.getbasetemp()
    counts_processes = folder_of(request.node.path) in STARTS_PROCESSES and not request.node.get_closest_marker("ray")
    mounts_before = mounts(base)
    processes_before = marked_processes() if counts_processes else {}
    yield
    if request.session.exitstatus == pytest.ExitCode.INTERRUPTED:
        return  # whatever it has left, the end of the run ends
    processes = wait_until_gone(processes_before, grace_s=30) if counts_processes else {}
    left = mounts(base) - mounts_before
    if processes or left:
        leftovers.kill(lambda: wait_until_gone(processes_before, 0) if counts_processes else ())
        leftovers.unmount(left)
        pytest.fail(describe(processes, left), pytrace=False)


END_GRACE_S = 60
"""How long a run waits at its end for its processes to end."""
LEFT_BY_WORKERS: list[str] = []
"""What workers of pytest-xdist told their controller at their ends."""


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker found at its end; one that crashed says nothing."""
    LEFT_BY_WORKERS.extend(getattr(node, "workeroutput", {}).get("left behind", ()))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
    """End what of the run is still there, and fail the run unless it was interrupted."""
    try:
        return (yield)
    finally:
        end_run(session, exitstatus)


def end_run(session: pytest.Session, exitstatus: int) -> None:
    if os.getpid() != leftovers.MARKED:
        return  # a test's child, which a signal to the group has interrupted
    interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
    processes = wait_until_gone({}, 0 if interrupted else END_GRACE_S)
    leftovers.kill(marked_processes)
    worker = worker_id(session.config)
    points = set() if worker else leftovers.end_directories(leftovers.this_run())
    found = [*LEFT_BY_WORKERS, *([describe(processes, points)] if processes or points else [])]
    if found and worker:  # whose exit status is not looked at
        output: dict[str, Any] = getattr(session.config, "workeroutput")  # noqa: B009 - set by pytest-xdist
        output["left behind"] = [f"of {worker} {each}" for each in found]
    elif found and not interrupted:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("".join(f"\nThe run {each}" for each in found), red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def directories_of_runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Record pytest's directory, and have the runs of pytest that tests start make theirs within it.

    Each run closes the directory that all runs of a user have in common to other users, and some tests need theirs to
    be open to one.
    """
    base = tmp_path_factory.getbasetemp()
    leftovers.record("kept", base)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = os.fspath(base)


# -- an S3 server that tests share -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def shared_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    from tests.s3_server import running_s3

    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def s3(shared_s3: S3Server) -> S3Server:
    """An S3 server with an empty bucket: to start one takes longer than most of the tests that want it."""
    shared_s3.empty()
    return shared_s3


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def memory() -> Iterator[Path | None]:
    """A directory in memory; None where there is no room."""
    with directory_in_memory() as directory:
        yield directory


@pytest.fixture(autouse=True)
def in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """Have ``tempfile`` use memory where a test repeats a story for each of its system calls, or for many seeds.

    Returns:
        The directory; None elsewhere and where there is no room.
    """
    if folder_of(request.node.path) not in REPEAT_STORIES:
        return None
    memory: Path | None = request.getfixturevalue("memory")
    if memory:
        monkeypatch.setattr(tempfile, "tempdir", os.fspath(memory))
    return memory


@pytest.fixture
def tmp_path(tmp_path: Path, in_memory: Path | None) -> Iterator[Path]:
    """pytest's own, but in memory where ``tempfile`` is."""
    if in_memory is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=in_memory) as directory:
        yield Path(directory)


# -- syncs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_syncs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no sync where a test repeats a story for each of its system calls, or for many seeds.

    A sync decides what a loss of power leaves. These tests kill processes, and no machine; where they are about power,
    they compute from the recorded calls what it leaves. More than half of their time were syncs.
    """
    if folder_of(request.node.path) in REPEAT_STORIES:
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, lambda _: None)


# -- log ---------------------------------------------------------------------------------------------------------------


class Collected(logging.Handler):
    """Keeps what was logged at WARNING or above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


@pytest.fixture(autouse=True)
def structlog_to_stdlib() -> Iterator[None]:
    """Have structlog's events go to the stdlib's loggers, where `caplog` and `no_unexpected_warnings` see them."""
    before = structlog.get_config()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"], repr_native_str=False),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def no_unexpected_warnings(request: pytest.FixtureRequest, structlog_to_stdlib: None) -> Iterator[None]:
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
