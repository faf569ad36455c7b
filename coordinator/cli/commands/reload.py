"""``podium reload``: having a running service use the project file and the code as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, ProjectOption, command, home_of

if TYPE_CHECKING:
    from coordinator.registry.reloading import Reloaded

__all__ = ["reload"]


@command
def reload(
    context: typer.Context,
    *,
    project: ProjectOption = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Read podium.toml again; agents move to edited code and configuration after their running turns.

    Sleeping agents have them when they wake. The environment and the settings of a running service do not change.
    """
    import asyncio  # noqa: PLC0415  slow to import, as are the others, and --help needs none

    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from coordinator.cli.stores import opened_journal  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.registry.project import load_project  # noqa: PLC0415
    from coordinator.registry.reloading import reload_project  # noqa: PLC0415
    from coordinator.service.connecting import attach  # noqa: PLC0415
    from podium.code.deploys import current_deploy  # noqa: PLC0415

    loaded = load_project(project)
    home, file = home_of(context, home, loaded, project), loaded.file

    async def ask() -> Reloaded | None:
        with Progress() as progress:
            async with attach(Home(home).open()) as client:
                if client is None:
                    return None
                progress.show("reading the agents' code")
                return await reload_project(client, file, home)

    done = asyncio.run(ask())
    if json:
        write_json({"service": done is not None, **(done.to_wire() if done is not None else {})})
        return
    if done is None:
        say(f"no service is running; the next one reads {file}")
        return
    for agent in done.agents:
        write_line(agent)
    with opened_journal(home) as store:
        deploy = current_deploy(store)
    if deploy is not None:
        say(
            f"agents run deploy {deploy.number}, not the files of {file.parent}: podium deploy makes their code current"
        )
        return
    say(f"{file} is in use: {', '.join(done.registry.types)}; awake agents that move: {len(done.agents)}")
    if done.restart_for:
        say(f"start the service again to give its agents other values of {', '.join(done.restart_for)}")
