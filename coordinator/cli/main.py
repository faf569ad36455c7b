"""``podium``: the commands put together, and the one place where errors become a line of text and an exit code."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chronicle.blobs.wait_notices import telling
from chronicle.cli_kit.stdout import whole_stdout
from chronicle.system.os_errors import os_error_text
from coordinator.cli.commands import (
    archive,
    artifacts,
    cat,
    delete,
    diff,
    erase,
    fold,
    fork,
    gc,
    history,
    inbox,
    log,
    passivate,
    ps,
    rewind,
    run,
    state,
    verify,
)
from coordinator.cli.exits import MEANINGS, ExitCode, exit_code
from coordinator.cli.options import DebugOption, Invocation
from coordinator.cli.terminal import say, warn, write_line
from podium.errors import AgentLoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["app", "main"]

EXIT_CODES: Final = "\b\nExit codes:\n" + "\n".join(f"{code:>3}  {meaning}" for code, meaning in MEANINGS.items())

app = typer.Typer(
    name="podium",
    help="Stateful AI agents: durable state, versioned files, one atomic commit per turn.",
    epilog=EXIT_CODES,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it starts at once, and reads the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "run": run.run,
    "ps": ps.ps,
    "log": log.log,
    "inbox": inbox.inbox,
    "retry": inbox.retry,
    "drop": inbox.drop,
    "state": state.state,
    "history": history.history,
    "cat": cat.cat,
    "artifacts": artifacts.artifacts,
    "artifact": artifacts.artifact,
    "diff": diff.diff,
    "fork": fork.fork,
    "rewind": rewind.rewind,
    "passivate": passivate.passivate,
    "export": archive.export,
    "import": archive.import_,
    "fold": fold.fold,
    "erase": erase.erase,
    "delete": delete.delete,
    "gc": gc.gc,
    "verify": verify.verify,
}
for name, command in COMMANDS.items():
    app.command(name)(command)


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import version  # noqa: PLC0415  slow, and rarely asked for

        write_line(f"podium {version('podium')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: DebugOption = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: those of the command line, without the program's name; the process's own by default.

    Returns:
        the exit code, one of `ExitCode`. No exception leaves.
    """
    sys.set_int_max_str_digits(0)  # a state may hold longer integers than Python prints by default
    with whole_stdout(), telling(say):
        return _main(list(sys.argv[1:] if arguments is None else arguments) or ["--help"])


def _main(arguments: list[str]) -> int:
    invocation = Invocation()
    try:
        code = _invoke(arguments, invocation)
        sys.stdout.flush()  # here, where a reader that left can still be told apart from a bug
    except KeyboardInterrupt:
        if invocation.debug:
            traceback.print_exc()
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001  this is where they all end
        return _report(_single(error), debug=invocation.debug)
    return code


def _invoke(arguments: list[str], invocation: Invocation) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("podium", arguments, obj=invocation) as context:
            command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.TyperException as error:
        return _report_usage(error)
    return ExitCode.OK


def _report_usage(error: typer.TyperException) -> int:
    """Say what cannot be understood, and which help to ask for."""
    context = getattr(error, "ctx", None)
    describe = getattr(error, "format_message", error.__str__)
    warn(str(describe()))
    if context is not None:
        say(f"see: {context.command_path} --help")
    return ExitCode.USAGE


def _report(error: Exception, *, debug: bool) -> int:
    """Say what went wrong in a line or two."""
    code = exit_code(error)
    if code is ExitCode.BROKEN_PIPE:  # nobody reads any more
        return code
    if debug:
        traceback.print_exception(error)
        if isinstance(error, AgentLoadError) and error.detail:
            say(error.detail)
    text = os_error_text(error) if isinstance(error, OSError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if code is ExitCode.BUG:
        warn(f"unexpected {type(error).__name__}: {' '.join(lines) or 'no message'}")
        say("This is a bug in podium. Run the command again with --debug and report what it prints.")
        return code
    warn("\n".join(lines[:2]) or type(error).__name__)
    for note in getattr(error, "__notes__", ()):
        say(note)
    return code


def _single(error: Exception) -> Exception:
    """Return the one error that a task group wrapped, or the error itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
