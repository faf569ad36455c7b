"""The command ``podium``: its subcommands, how it reports an error, and its entry point."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from chronicle.cli_kit.errors import ErrorPrinter
from chronicle.cli_kit.main import new_app
from chronicle.cli_kit.main import run as run_command
from chronicle.cli_kit.terminal import say
from coordinator.cli.exits import EXITS, exit_code
from coordinator.cli.hints import hint
from podium.errors import AgentLoadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

__all__ = ["COMMANDS", "app_of", "main"]

COMMANDS: Final[dict[str, str]] = {
    "new": "new.new",
    "run": "run.run",
    "send": "send.send",
    "chat": "send.chat",
    "up": "up.up",
    "down": "down.down",
    "reload": "reload.reload",
    "ps": "ps.ps",
    "why": "why.why",
    "nodes": "why.nodes",
    "top": "top.top",
    "log": "log.log",
    "turns": "turns.turns",
    "inbox": "inbox.inbox",
    "retry": "inbox.retry",
    "drop": "inbox.drop",
    "reminders": "reminders.reminders",
    "state": "state.state",
    "history": "history.history",
    "cat": "cat.cat",
    "artifacts": "artifacts.artifacts",
    "artifact": "artifacts.artifact",
    "diff": "diff.diff",
    "fork": "fork.fork",
    "rewind": "rewind.rewind",
    "passivate": "passivate.passivate",
    "export": "archive.export",
    "import": "archive.import_",
    "fold": "fold.fold",
    "erase": "erase.erase",
    "delete": "delete.delete",
    "backup": "backup.backup",
    "gc": "gc.gc",
    "verify": "verify.verify",
}
"""The function of each command, in a module of `coordinator.cli.commands`. Only that of the command that is run is
imported: all of them take 0.06 s."""
GROUPS: Final[dict[str, str]] = {
    "keys": "keys.app",
    "models": "models.app",
}
"""The same of groups of commands."""


def app_of(*names: str) -> typer.Typer:
    """Return the app with some of the commands and groups, all by default."""
    app = new_app(
        "podium", "Stateful AI agents: durable state, versioned files, one atomic commit per turn.", EXITS.help_text()
    )
    for name in COMMANDS:
        if not names or name in names:
            app.command(name)(_imported(COMMANDS[name]))
    for name in GROUPS:
        if not names or name in names:
            app.add_typer(_imported(GROUPS[name]), name=name)
    return app


def _imported(place: str) -> Any:
    module, _, name = place.partition(".")
    return getattr(import_module(f"coordinator.cli.commands.{module}"), name)


_MESSAGE_LINES: Final = 2


class _Errors(ErrorPrinter):
    """Errors of ``podium``: at most two lines and a hint, the notes of the exception, and where to look for more."""

    def print_usage(self, error: typer.TyperException) -> None:
        super().print_usage(error)
        context = getattr(error, "ctx", None)
        if context is not None:
            self.say(f"see: {context.command_path} --help")

    def print_failure(self, error: Exception) -> None:
        lines = self._lines(error)[:_MESSAGE_LINES] or [type(error).__name__]
        self.say(f"{self.name}: " + self.with_hint("\n".join(lines), error))
        for note in getattr(error, "__notes__", ()):
            self.say(note)

    def print_bug(self, error: Exception) -> None:
        self.say(f"{self.name}: unexpected {type(error).__name__}: {' '.join(self._lines(error)) or 'no message'}")
        self.say("This is a bug in podium. Run the command again with --debug and report what it prints.")

    def print_traceback(self, error: Exception) -> None:
        super().print_traceback(error)
        if isinstance(error, AgentLoadError) and error.detail:
            self.say(error.detail)

    def _lines(self, error: Exception) -> list[str]:
        return [line.strip() for line in self.text_of(error).splitlines() if line.strip()]


_ERRORS: Final = _Errors("podium", exit_code, say, hint)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; see `chronicle.cli_kit.main.run`."""
    sys.set_int_max_str_digits(0)  # A state may hold longer integers than Python prints by default.
    given = list(sys.argv[1:] if arguments is None else arguments)
    named = given[:1] if given and given[0] in COMMANDS.keys() | GROUPS.keys() else []
    return run_command(app_of(*named), _ERRORS, given)
