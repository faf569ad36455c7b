"""Building a command and running it: from the arguments of the process to its exit code."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import typer

from chronicle.blobs.wait_notices import report_slow_requests
from chronicle.cli_kit.errors import single_error
from chronicle.cli_kit.exits import ExitCode
from chronicle.cli_kit.options import Invocation, global_options
from chronicle.cli_kit.stdout import whole_stdout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.cli_kit.errors import ErrorPrinter

__all__ = ["new_app", "run"]


def new_app(name: str, summary: str, epilog: str) -> typer.Typer:
    """Return a command without subcommands.

    Args:
        name: the program's.
        summary: the first paragraphs of its help.
        epilog: the last ones.
    """
    app = typer.Typer(
        name=name,
        help=summary,
        epilog=epilog,
        add_completion=True,
        rich_markup_mode=None,  # Plain help starts at once, and reads the same in a pipe.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(global_options)
    return app


def run(app: typer.Typer, errors: ErrorPrinter, arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand, and print its error if it fails.

    Args:
        app: see `new_app`.
        errors: prints what went wrong.
        arguments: of the command line, without the program's name; the process's own by default. Without any, the help
            is shown.

    Returns:
        the exit code. No exception leaves.
    """
    invocation = Invocation()
    with whole_stdout(), report_slow_requests(errors.say):
        try:
            code = _invoke(app, errors, list(sys.argv[1:] if arguments is None else arguments), invocation)
            sys.stdout.flush()  # Here, where a reader that went away can still be told from a bug.
        except KeyboardInterrupt:
            if invocation.debug:
                traceback.print_exc()
            return ExitCode.INTERRUPTED
        except Exception as error:  # noqa: BLE001 - every error of a subcommand ends here
            return errors.report(single_error(error), debug=invocation.debug)
    return code


def _invoke(app: typer.Typer, errors: ErrorPrinter, arguments: list[str], invocation: Invocation) -> int:
    command = typer.main.get_command(app)
    command._main_shell_completion({}, errors.name)  # noqa: SLF001  ends the process if a shell asks for completions
    try:
        with command.make_context(errors.name, arguments or ["--help"], obj=invocation) as context:
            command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.TyperException as error:
        errors.print_usage(error)
        return ExitCode.USAGE
    return ExitCode.OK
