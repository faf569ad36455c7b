"""``podium run``: sending messages to one agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.terminal import say
from coordinator.cli.options import (
    DEFAULT_HOME,
    BlobsUrlOption,
    HomeOption,
    JournalUrlOption,
    JsonOption,
    ProjectOption,
    command,
    home_of,
    urls_of,
)
from coordinator.cli.terminal import warn
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coordinator.home import Home
    from coordinator.process_environment import ProcessEnvironment
    from coordinator.registry.project import Project
    from coordinator.service.client import AgentRef
    from podium.address import Address

__all__ = ["run"]


@command
def run(
    context: typer.Context,
    spec: Annotated[str, typer.Argument(metavar="FILE.py:Class", help="The agent's file and class.")],
    *,
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="Which agent of that class.")] = "default",
    message: Annotated[
        list[str] | None,
        typer.Option("--message", "-m", metavar="TEXT", help="Send this and exit; can be repeated."),
    ] = None,
    when_busy: Annotated[
        BusyPolicy, typer.Option("--when-busy", help="The policy if it is busy with another message.")
    ] = BusyPolicy.ENQUEUE,
    project_file: ProjectOption = None,
    home: HomeOption = DEFAULT_HOME,
    blobs_url: BlobsUrlOption = "",
    journal_url: JournalUrlOption = "",
    json: JsonOption = False,
) -> None:
    """Send messages to an agent; without --message, chat with it.

    In a chat each line is a message. Ctrl-C cancels a reply, Ctrl-D exits. The same --key addresses the same agent
    again. With --json each frame of a reply is one line on stdout. In a project, podium.toml gives the agent's
    configuration and the environment of its service.
    """
    import asyncio  # noqa: PLC0415  all of these are slow to import, and --help needs none

    from coordinator.cli.inspection_cache import inspect_once  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home  # noqa: PLC0415
    from coordinator.registry.project_file import find_project  # noqa: PLC0415
    from coordinator.service.client import AgentRef  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415

    Address("agent", key)  # An invalid key is refused before anything is started.
    project = _project(project_file) if project_file or find_project() else None
    place = Home(home_of(context, home, project, project_file))
    info = inspect_once(place, spec)
    address = Address(info.agent_type, key)
    create_home(place, *urls_of(project_file, blobs_url, journal_url))
    if project is not None and project.models.profiles:
        from coordinator.homes.opening import open_records  # noqa: PLC0415  few projects have any
        from coordinator.models.config_file import store_config  # noqa: PLC0415

        store_config(open_records(place).documents(), project.models)
    config = project.config.get(info.agent_type, {}) if project is not None else {}
    agent = AgentRef(info.file, info.class_name, info.agent_type, config)
    raise typer.Exit(asyncio.run(_talk(place, agent, address, message, when_busy, json=json)))


def _project(file: Path | None) -> Project:
    """Return the project, with its variables in the environment: for the service, if this command starts it."""
    from coordinator.environment import add_variables  # noqa: PLC0415  a command outside of a project needs none
    from coordinator.registry.project import load_project  # noqa: PLC0415

    project = load_project(file)
    add_variables(project.variables)
    return project


async def _talk(
    home: Home, agent: AgentRef, address: Address, texts: Sequence[str] | None, when_busy: BusyPolicy, *, json: bool
) -> int:
    """Connect to the home's service, starting it if none runs, and send the messages."""
    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from coordinator.cli.chat import Chat  # noqa: PLC0415
    from coordinator.cli.line_input import Prompt, chosen_input  # noqa: PLC0415
    from coordinator.service.connecting import connect  # noqa: PLC0415

    if not home.service_alive():  # which has opened it
        _check_journal(home)
    with Progress() as progress:
        async with connect(home, on_progress=progress.show, on_notice=warn) as client:
            progress.clear()
            if client.surroundings is not None and client.is_here:
                _compare(client.surroundings, agent)
            turn, waits = await client.position(str(address))
            say(f"{address}, {_described(address, turn, waits=waits)}")
            log = home.agent_log(address)
            chat = Chat(client, agent, address.key, json=json, when_busy=when_busy, log=log)
            if texts is not None:
                return await chat.send_all(texts)
            lines = chosen_input()
            if isinstance(lines, Prompt):
                say("Ctrl-C cancels a reply, Ctrl-D exits.")
            return await chat.converse(lines)


def _compare(service: ProcessEnvironment, agent: AgentRef) -> None:
    """Warn if directory, Python or environment of this command differ from those that the service gives to agents."""
    from coordinator.process_environment import ProcessEnvironment, differences, names_in  # noqa: PLC0415

    here = ProcessEnvironment.of_this_process()
    names = frozenset(service.variables.keys() | here.variables.keys())
    if found := differences(service, here, names_in(agent.file, names)):
        warn(
            f"agents run in the environment of the command that started the home's service: {'; '.join(found)}. To "
            "give them that of this command, end all commands that use the home, and start again"
        )


def _described(address: Address, turn: int | None, *, waits: bool) -> str:
    """Describe an agent's last turn, and whether messages wait: they are handled before those of this command."""
    position = "new" if turn is None else f"at turn {turn}"
    return f"{position}; messages wait in its inbox: podium inbox {address}" if waits else position


def _check_journal(home: Home) -> None:
    """Report a journal that cannot be opened before Ray starts."""
    home.journal().close()
