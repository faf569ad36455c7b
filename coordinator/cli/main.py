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
from coordinator.environment import variables
from podium.errors import AgentLoadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

__all__ = ["COMMANDS", "app_of", "main"]

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "new": ("new.new", "Make a project: a directory with an agent, its test and podium.toml."),
    "run": ("run.run", "Send messages to an agent; without --message, chat with it."),
    "send": ("send.send", "Send one message to an agent, and print its reply."),
    "chat": ("send.chat", "Chat with an agent: each line is a message."),
    "up": ("up.up", "Serve the agents of a project over HTTP until Ctrl-C, or `podium down`."),
    "node": ("node.node", "Let agents run on this machine's Ray node, for a service on another machine, until Ctrl-C."),
    "down": ("down.down", "End the gateway and the service of a home in order."),
    "reload": (
        "reload.reload",
        "Read podium.toml again; agents move to edited code and configuration after their running turns.",
    ),
    "types": (
        "types.types",
        "List the agent types of the project, with the handlers of each; --json has their JSON Schemas.",
    ),
    "deploy": ("deploy.deploy", "Have a home's agents run the project's code as it is now, from the blob store."),
    "deploys": ("deploy.deploys", "List the deploys of a home, the current one last."),
    "ps": ("ps.ps", "List the agents of a home."),
    "why": ("why.why", "Show what an agent waits for."),
    "nodes": ("why.nodes", "List the nodes that run agents, with their hosts and their memory."),
    "hand-over": ("hand_over.hand_over", "Have the service of a name serve the home, which stands by."),
    "drain": ("drain.drain", "Move the agents of a node to other nodes, and keep it empty."),
    "top": ("top.top", "Watch the agents of a home: turns, wakes and what waits, by agent type, until Ctrl-C."),
    "log": ("log.log", "Show an agent's events, oldest first; not those that a rewind has hidden."),
    "turns": ("turns.turns", "List an agent's committed turns: why each ran, when, and how much it changed."),
    "steps": (
        "steps.steps",
        "List the steps of a turn, in the order of their ends: how long each took, and what it changed.",
    ),
    "context": ("context.context", "Show what an agent's models were sent in a turn, and what they answered."),
    "inbox": (
        "inbox.inbox",
        "Show what waits at an agent: pending, paused and parked messages, and those of others held in the outbox.",
    ),
    "retry": ("inbox.retry", "Make parked messages pending again, and wake the agent."),
    "drop": ("inbox.drop", "Remove a pending, paused or parked message permanently."),
    "paused": ("paused.paused", "List the runs whose turns are paused, and what each waits for."),
    "link": ("paused.link", "Make a link by which its holder answers, once, what a paused run waits for."),
    "resolve": ("paused.resolve", "Answer a paused run, or reject the promise that it waits for; it then goes on."),
    "reminders": ("reminders.reminders", "List the reminders that an agent has set, or cancel one."),
    "state": ("state.state", "Show an agent's state, now or after a turn."),
    "history": ("history.history", "List the versions of one of an agent's files."),
    "cat": ("cat.cat", "Print one of an agent's files, or a version of it."),
    "artifacts": ("artifacts.artifacts", "List the artifacts of an agent, oldest first."),
    "artifact": ("artifacts.artifact", "Print the content of an artifact, or write it to a file."),
    "diff": ("diff.diff", "Show the differences between two moments: in state, files and transcript."),
    "fork": ("fork.fork", "Make a new agent that continues another one."),
    "rewind": ("rewind.rewind", "Return an agent to an earlier turn."),
    "passivate": ("passivate.passivate", "Put an agent to sleep after its current turn, and return when it sleeps."),
    "export": ("archive.export", "Write an agent to one file: all its events, and all versions of its files."),
    "import": ("archive.import_", "Import an agent from a file, on this machine or another one."),
    "fold": ("fold.fold", "Drop the older history of an agent; without options, all history before now."),
    "erase": ("erase.erase", "Erase the content of messages, replies, results and artifacts permanently."),
    "delete": ("delete.delete", "Delete an agent permanently: its events, state, files and messages."),
    "migrate": ("migrate.migrate", "Move a home into PostgreSQL and an object store, and verify it there."),
    "upgrade": ("upgrade.upgrade", "Show the formats of a home's parts, and upgrade those that are older."),
    "backup": ("backup.backup", "Copy a home as it is at one moment, while its agents go on, and verify the copy."),
    "gc": ("gc.gc", "Free blobs that nothing needs."),
    "doctor": ("doctor.doctor", "Check what a home needs around it, and say what to do where something is amiss."),
    "verify": ("verify.verify", "Check all stored data against its hashes."),
}
"""The function of each command, in a module of `coordinator.cli.commands`, and the first line of its help. Only that of
the command that is run is imported, and none for the list of commands: all of them take 0.1 s."""
GROUPS: Final[dict[str, tuple[str, str]]] = {
    "keys": ("keys.app", "Create, list, revoke and rotate the API keys of a home."),
    "token": ("token.app", "Create short-lived tokens for one agent."),
    "models": ("models.app", "List the profiles of models, and the records of their calls."),
}
"""The same of groups of commands."""
_COMPLETION: Final = "_PODIUM_COMPLETE"
"""The variable by which a shell asks for completions, which need the options of the commands."""


def app_of(*names: str, listed: bool = False) -> typer.Typer:
    """Return the app with some of the commands and groups, all by default.

    Args:
        listed: only what a list of them shows: none can be run.
    """
    app = new_app(
        "podium", "Stateful AI agents: durable state, versioned files, one atomic commit per turn.", EXITS.help_text()
    )
    for name, (place, summary) in {**COMMANDS, **GROUPS}.items():
        if listed:
            app.command(name, help=summary)(lambda: None)
        elif names and name not in names:
            continue
        elif name in GROUPS:
            app.add_typer(_imported(place), name=name)
        else:
            app.command(name)(_imported(place))
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
    known = COMMANDS.keys() | GROUPS.keys()
    named = given[:1] if given and given[0] in known else []
    listed = known.isdisjoint(given) and _COMPLETION not in variables()
    return run_command(app_of(*named, listed=listed), _ERRORS, given)
