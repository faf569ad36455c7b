"""``chronicle``: versioned workspaces on the command line, with no agent and no service.

Data goes to stdout, talk to stderr. The store is named with ``--store`` or ``CHRONICLE_STORE``; inside of a mounted
workspace it need not be named.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
import traceback
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from chronicle import errors
from chronicle.stdout import whole_stdout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.fuse.client import FuseWorkspace
    from chronicle.repository import Committed, Repository
    from chronicle.workspace.committed import CommittedWorkspace
    from chronicle.workspace.layer import Layer

__all__ = ["ExitCode", "app", "main"]


class ExitCode(IntEnum):
    """What a process of ``chronicle`` ended with; the same numbers as ``podium``'s."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 22
    TOO_NEW = 42
    UNAVAILABLE = 50
    CONFLICT = 51
    DAMAGED = 60
    BUG = 70
    OS_ERROR = 74
    INTERRUPTED = 130


_MEANINGS: Final = {
    ExitCode.OK: "done",
    ExitCode.ERROR: "an error that has no code of its own; stderr says which",
    ExitCode.USAGE: "the command line cannot be understood, or a value in it cannot be used",
    ExitCode.NOT_FOUND: "no such store, workspace, path or iteration",
    ExitCode.TOO_NEW: "a newer version wrote the store",
    ExitCode.UNAVAILABLE: "a mount or the blob store does not answer, or FUSE cannot be used",
    ExitCode.CONFLICT: "someone else was first; try again",
    ExitCode.DAMAGED: "stored bytes are not what was written",
    ExitCode.BUG: "an unexpected exception: a bug",
    ExitCode.OS_ERROR: "the operating system refused: disk full, I/O error, permissions",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}
_ERRORS: Final[dict[type[BaseException], ExitCode]] = {
    errors.ChronicleError: ExitCode.ERROR,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.InvalidInput: ExitCode.USAGE,
    errors.Conflict: ExitCode.CONFLICT,
    errors.StaleEpoch: ExitCode.CONFLICT,
    errors.Corrupt: ExitCode.DAMAGED,
    errors.UnsupportedFormat: ExitCode.TOO_NEW,
    errors.Unavailable: ExitCode.UNAVAILABLE,
    OSError: ExitCode.OS_ERROR,
}
"""A subclass has the code of its nearest ancestor here."""
_FOREGROUND_POLL_S: Final = 0.5
_PIECE: Final = 1024 * 1024

app = typer.Typer(
    name="chronicle",
    help="Versioned workspaces: every version of every file is kept, and read back as files.",
    epilog="\b\nExit codes:\n" + "\n".join(f"{code:>3}  {meaning}" for code, meaning in _MEANINGS.items()),
    add_completion=False,
    rich_markup_mode=None,  # plain help: it starts at once, and reads the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="CHRONICLE_STORE", metavar="STORE", help="A directory or URL; default: that of this mount."
    ),
]
WorkspaceOption = Annotated[
    str, typer.Option("--workspace", "-w", metavar="NAME", help="Which workspace of the store.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


@app.callback()
def options(*, debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False) -> None:
    """Take the options that stand before the command."""
    _Debug.on = debug


class _Debug:
    on = False


@app.command()
def mount(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="A directory or a URL (s3://bucket/prefix); made if it is not there.")
    ],
    mountpoint: Annotated[Path, typer.Argument(metavar="MOUNTPOINT", help="An empty directory; made likewise.")],
    *,
    workspace: WorkspaceOption = "main",
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay until Ctrl-C, then unmount.")] = False,
) -> None:
    """Mount a workspace. What is written is kept in the store at once, and committed with `chronicle commit`."""
    repository = _repository_at(store)
    repository.mount(workspace, mountpoint, with_caller=foreground)
    _say(f"{workspace} of {repository.name} is mounted at {mountpoint.absolute()}")
    if foreground:
        _stay(repository, mountpoint)


@app.command()
def checkout(
    source: Annotated[
        str, typer.Argument(metavar="STORE[@TURN]", help="The store, and which commit; by default the last one.")
    ],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put the files: a new or empty directory.")],
    *,
    workspace: WorkspaceOption = "main",
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Say how far it is; by default on a terminal.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a commit's files into a plain directory. It appears when it is whole."""
    store, _, number = source.rpartition("@")
    if not store or not number.isdecimal():
        store, number = source, ""
    shown = progress if progress is not None else sys.stderr.isatty()
    done = _repository_at(store).checkout(workspace, int(number) if number else None, directory, progress=shown)
    if as_json:
        _write_json(_commit_object(done))
    else:
        _say(f"commit {done.turn} of {workspace} is in {directory.absolute()}")


@app.command()
def unmount(mountpoint: Annotated[Path, typer.Argument(metavar="MOUNTPOINT")]) -> None:
    """Unmount a workspace. What was not committed stays in the store, and is there again after the next mount."""
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it

    Repository.around(mountpoint).unmount(mountpoint)


@app.command()
def commit(
    *,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="What it is.")],
    store: StoreOption = None,
    workspace: WorkspaceOption = "main",
    as_json: JsonOption = False,
) -> None:
    """Commit what the workspace holds, mounted or not. Nothing changed, nothing committed."""
    done = _repository(store).commit(workspace, message)
    if as_json:
        _write_json(_commit_object(done) if done is not None else None)
    else:
        _write(f"commit {done.turn}  {done.ref.tree_id}" if done is not None else "nothing changed")


@app.command()
def log(*, store: StoreOption = None, workspace: WorkspaceOption = "main", as_json: JsonOption = False) -> None:
    """List the commits, oldest first."""
    commits = _repository(store).commits(workspace)
    if as_json:
        _write_json([_commit_object(item) for item in commits])
        return
    for item in commits:
        _write(f"{item.turn:>5}  {_time(item.timestamp)}  {item.ref.tree_id[:12]}  {item.message}")


@app.command()
def history(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Relative to the workspace's root.")],
    *,
    store: StoreOption = None,
    workspace: WorkspaceOption = "main",
    as_json: JsonOption = False,
) -> None:
    """List the versions of a path, oldest first, those not committed included."""
    with _reading(store, workspace) as opened:
        versions = opened.history(path)
    if as_json:
        _write_json(
            [{name: value for name, value in asdict(version).items() if value is not None} for version in versions]
        )
        return
    for version in versions:
        source = f"  from {version.source}" if version.source is not None else ""
        what = f"{version.op:<8} {version.size:>10}  {version.hash[:12]:<12}  turn {version.turn}{source}"
        _write(f"{version.iteration:>5}  {_time(version.timestamp)}  {what}")


@app.command()
def cat(
    moment: Annotated[str, typer.Argument(metavar="PATH[@ITERATION]", help="Without an iteration, the last one.")],
    *,
    store: StoreOption = None,
    workspace: WorkspaceOption = "main",
) -> None:
    """Write one version of a file to stdout."""
    path, _, number = moment.rpartition("@")
    if not path or not number.isdecimal():
        path, number = moment, ""
    with _reading(store, workspace) as opened:
        iteration = int(number) if number else opened.history(path)[-1].iteration
        with opened.at(path, iteration) as version:
            shutil.copyfileobj(version, sys.stdout.buffer, _PIECE)
    sys.stdout.buffer.flush()


@app.command()
def verify(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check that everything is as it was written: the chain of commits, and every blob that they reach."""
    checks = []
    for check in _repository(store).verify():
        checks.append(check)
        if not as_json:
            verdict = "good" if check.problem is None else f"BAD: {check.problem}"
            _write(f"{check.workspace}: {check.events} events, {check.blobs} blobs: {verdict}")
    if as_json:
        _write_json([asdict(check) for check in checks])
    if any(check.problem is not None for check in checks):
        raise typer.Exit(ExitCode.DAMAGED)


@app.command()
def stats(*, store: StoreOption = None, workspace: WorkspaceOption = "main", as_json: JsonOption = False) -> None:
    """Count the last commit's files, and what the store takes on disk."""
    counted = _repository(store).stats(workspace)
    if as_json:
        _write_json(asdict(counted))
        return
    _write(f"commits        {counted.commits}")
    _write(f"files          {counted.files}")
    _write(f"logical bytes  {counted.logical_bytes}")
    _write(f"blobs          {counted.blobs}  (all workspaces of the store)")
    _write(f"stored bytes   {counted.stored_bytes}  (the same)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: those of the command line, without the program's name; the process's own by default.

    Returns:
        the exit code, one of `ExitCode`. No exception leaves.
    """
    with whole_stdout():
        return _main(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])


def _main(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("chronicle", arguments) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.TyperException as error:
        _say(f"chronicle: {error.format_message()}")
        return ExitCode.USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # nobody reads any more
        return ExitCode.OK
    except Exception as error:  # noqa: BLE001 - this is where they all end
        return _report(error)
    return ExitCode.OK


def _report(error: Exception) -> ExitCode:
    """Say what went wrong in a line."""
    if _Debug.on:
        traceback.print_exception(error)
    code = next((_ERRORS[kind] for kind in type(error).__mro__ if kind in _ERRORS), ExitCode.BUG)
    if code is ExitCode.BUG:
        _say(f"chronicle: unexpected {type(error).__name__}: {error}; run it again with --debug and report it")
    else:
        _say(f"chronicle: {error}")
    return code


def _repository(store: str | None) -> Repository:
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it

    return Repository.at(store) if store is not None else Repository.around(Path.cwd())


@contextmanager
def _reading(store: str | None, workspace: str) -> Iterator[FuseWorkspace | Layer | CommittedWorkspace]:
    """Open a workspace to read it, and say so if that is not all of it."""
    from chronicle.workspace.committed import CommittedWorkspace  # noqa: PLC0415 - the help needs none of it

    with _repository(store).opened(workspace) as opened:
        if isinstance(opened, CommittedWorkspace) and not opened.complete:
            _say("the store cannot be written, so what was changed since the last commit cannot be read")
        yield opened


def _repository_at(store: str) -> Repository:
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it

    return Repository.at(store)


def _stay(repository: Repository, mountpoint: Path) -> None:
    """Wait until someone unmounts, or ends this process."""
    from chronicle.fuse.mounts import is_mounted  # noqa: PLC0415 - the help needs none of it

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        while is_mounted(mountpoint):
            time.sleep(_FOREGROUND_POLL_S)
    except KeyboardInterrupt:
        repository.unmount(mountpoint)


def _commit_object(item: Committed) -> dict[str, Any]:
    return {
        "turn": item.turn,
        "timestamp": item.timestamp,
        "message": item.message,
        "tree_id": item.ref.tree_id,
        "oplog_id": item.ref.oplog_id,
    }


def _time(epoch_ms: int) -> str:
    moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_json(value: object) -> None:
    # Escaped: whatever a name holds, it neither breaks the encoding nor steers the terminal.
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


def _write(line: str) -> None:
    sys.stdout.write(_shown(line) + "\n")


def _say(line: str) -> None:
    sys.stderr.write(_shown(line) + "\n")
    sys.stderr.flush()


def _shown(text: str) -> str:
    """Return text without what could steer a terminal, in what any encoding holds."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text
    )
