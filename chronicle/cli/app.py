"""The command ``chronicle``: its subcommands, and its entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.cli.bench import bench
from chronicle.cli.commits import commit, fork, log, restore
from chronicle.cli.exits import EXITS
from chronicle.cli.hints import HINTS
from chronicle.cli.maintenance import gc, stats, verify
from chronicle.cli.mounts import checkout, mount, unmount
from chronicle.cli.output import say
from chronicle.cli.versions import cat, diff, history
from chronicle.cli_kit.errors import ErrorPrinter
from chronicle.cli_kit.main import new_app, run

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main"]

app = new_app(
    "chronicle",
    "Versioned workspaces: every version of every file is kept, and read back as files.\n\n"
    "The store is named with --store or CHRONICLE_STORE; inside of a mounted workspace it need not be named.",
    EXITS.help_text(),
)
for _command in (mount, unmount, checkout, commit, log, history, cat, diff, restore, fork, verify, gc, stats, bench):
    app.command()(_command)

_ERRORS: Final = ErrorPrinter("chronicle", EXITS.code, say, HINTS.hint)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; see `chronicle.cli_kit.main.run`."""
    return run(app, _ERRORS, arguments)
