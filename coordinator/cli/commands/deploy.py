"""``podium deploy`` and ``podium deploys``: the code of a home's agents in its blob store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from chronicle.cli_kit.times import iso
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, ProjectOption, command, home_of, urls_of
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from coordinator.home import Home
    from coordinator.registry.project import Project
    from podium.code.deploys import Deploy

__all__ = ["deploy", "deploys"]


@command
def deploy(
    context: typer.Context,
    *,
    previous: Annotated[
        bool, typer.Option("--previous", help="Make the code of the deploy before the current one current.")
    ] = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Have agents run the files of the service's machine again.")
    ] = False,
    project: ProjectOption = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Have a home's agents run the project's code as it is now, from the blob store.

    The files that the agents import from the project's directory are packed with podium.toml and its configuration of
    agents; nodes need no checkout. A running service uses them at once: awake agents move to them after their running
    turns.
    """
    import asyncio  # noqa: PLC0415  slow to import, as are the others, and --help needs none

    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from coordinator.environment import add_variables  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home  # noqa: PLC0415
    from coordinator.registry.project import load_project  # noqa: PLC0415

    if previous and withdraw:
        raise typer.BadParameter("give --previous or --withdraw, not both")
    packs = not (previous or withdraw)
    loaded = load_project(project) if packs or project is not None else None
    place = Home(home_of(context, home, loaded, project))
    if loaded is not None:
        add_variables(loaded.variables)
    if packs:
        create_home(place, *urls_of(project, "", ""))
    with Progress() as progress:
        progress.show("packing the agents' code" if packs else "deploying")
        made = _recorded(place.open(), loaded if packs else None, previous=previous)
        try:
            reloaded = asyncio.run(_used(place))
        except Exception as error:
            error.add_note(f"deploy {made.number} is current; podium reload has a running service use it")
            raise
    if json:
        write_json({**made.to_wire(), "service": reloaded is not None, "reloaded": reloaded or []})
        return
    for agent in reloaded or ():
        write_line(agent)
    said = f"deploy {made.number} is current: {_code_of(made)}"
    said += "; no service is running" if reloaded is None else f"; awake agents that move: {len(reloaded)}"
    say(said)


@command
def deploys(
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """List the deploys of a home, the current one last."""
    from coordinator.cli.stores import read_journal  # noqa: PLC0415
    from podium.code.deploys import deploys as deploys_of  # noqa: PLC0415

    with read_journal(home) as store:
        found = deploys_of(store)
    if json:
        write_json({"deploys": [each.to_wire() for each in found]})
    elif not found:
        say("no deploys yet: podium deploy makes one")
    else:
        rows = [(str(each.number), _code_of(each), each.by, iso(each.made_ms)) for each in found]
        table(("DEPLOY", "BUNDLE", "BY", "MADE"), rows)


def _code_of(made: Deploy) -> str:
    from podium.code.manifest import short_id  # noqa: PLC0415

    return short_id(made.bundle) if made.bundle is not None else "files of the service's machine"


def _recorded(home: Home, project: Project | None, *, previous: bool) -> Deploy:
    """Make a deploy, and write the line of the audit record.

    Args:
        project: what to pack; ``None`` for the code of the deploy before, or for none.
    """
    import os  # noqa: PLC0415
    from contextlib import closing  # noqa: PLC0415

    from chronicle.clock import SystemClock  # noqa: PLC0415
    from coordinator.access.audit import Audit  # noqa: PLC0415
    from coordinator.registry.deploying import pack_project  # noqa: PLC0415
    from podium.code.deploys import make_deploy, previous_deploy  # noqa: PLC0415

    who, clock = f"cli uid {os.getuid()}", SystemClock()
    with (
        closing(home.journal()) as store,
        closing(home.blobs()) as blobs,
        Audit(home.logs, clock).noting(who, "deploy") as line,
    ):
        bundle = None
        if project is not None:
            bundle = pack_project(project, blobs).bundle
        elif previous:
            bundle = previous_deploy(store).bundle
        made = make_deploy(store, blobs, bundle, who, clock.now_ms())
        line.update(number=made.number, bundle=made.bundle)
    return made


async def _used(home: Home) -> list[str] | None:
    """Have a running service use the current deploy; return the agents that move, ``None`` if none runs."""
    from coordinator.service.connecting import attach  # noqa: PLC0415

    async with attach(home) as client:
        return await client.redeploy() if client is not None else None
