"""The command itself: its commands put together, and how each of them ends."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.blobs.wait_notices import telling
from chronicle.cli.bench import bench
from chronicle.cli.commits import commit, fork, log, restore
from chronicle.cli.exits import MEANINGS, ExitCode, exit_code
from chronicle.cli.inspection import cat, diff, history
from chronicle.cli.maintenance import gc, stats, verify
from chronicle.cli.mounts import checkout, mount, unmount
from chronicle.cli.output import say, write
from chronicle.cli_kit.stdout import whole_stdout
from chronicle.system.os_errors import os_error_text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main"]

app = typer.Typer(
    name="chronicle",
    help="Versioned workspaces: every version of every file is kept, and read back as files.\n\n"
    "The store is named with --store or CHRONICLE_STORE; inside of a mounted workspace it need not be named.",
    epilog="\b\nExit codes:\n" + "\n".join(f"{code:>3}  {meaning}" for code, meaning in MEANINGS.items()),
    add_completion=False,
    rich_markup_mode=None,  # plain help: it starts at once, and reads the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _command in (mount, unmount, checkout, commit, log, history, cat, diff, restore, fork, verify, gc, stats, bench):
    app.command()(_command)


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import version  # noqa: PLC0415  slow, and rarely asked for

        write(f"chronicle {version('podium')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    version: Annotated[  # noqa: ARG001 - shown while it is parsed
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before the command."""
    _Debug.on = debug


class _Debug:
    on = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: those of the command line, without the program's name; the process's own by default.

    Returns:
        the exit code, one of `ExitCode`. No exception leaves.
    """
    with whole_stdout(), telling(say):
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
        say(f"chronicle: {error.format_message()}")
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
    code = exit_code(error)
    if code is ExitCode.BUG:
        say(f"chronicle: unexpected {type(error).__name__}: {error}; run it again with --debug and report it")
    else:
        say(f"chronicle: {os_error_text(error) if isinstance(error, OSError) else error}")
    return code
