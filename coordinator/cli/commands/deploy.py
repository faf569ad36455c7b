"""``podium deploy`` and ``podium deploys``: the code of a home's agents in its blob store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from chronicle.cli_kit.times import iso
from coordinator.cli.options import ProjectOption, command, home_of, urls_of
from coordinator.cli.target import Target
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chronicle.blobs.memory import MemoryBlobStore
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations import objects
    from coordinator.registry.project import Project
    from podium.code.manifest import Manifest

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
    target: Target,
) -> None:
    """Have a home's agents run the project's code as it is now, from the blob store.

    The files that the agents import from the project's directory are packed with podium.toml and its configuration of
    agents; nodes need no checkout. A running service uses them at once: awake agents move to them after their running
    turns.
    """
    from dataclasses import replace  # noqa: PLC0415

    from coordinator.environment import add_variables  # noqa: PLC0415  slow to import, as are the others
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home  # noqa: PLC0415
    from coordinator.registry.project import load_project  # noqa: PLC0415

    if previous and withdraw:
        raise typer.BadParameter("give --previous or --withdraw, not both")
    packs = not (previous or withdraw)
    loaded = load_project(project) if packs or project is not None else None
    if loaded is not None:
        add_variables(loaded.variables)
    if not target.url:
        target = replace(target, home=home_of(context, target.home, loaded, project))
    packed = _packed(loaded) if packs and loaded is not None else None
    if packed is not None and not target.url:
        create_home(Home(target.home), *urls_of(project, "", ""))

    async def made(podium: AsyncPodium) -> objects.Deployed:
        if packed is not None:
            return await podium.deploy(_pieces(*packed))
        return await (podium.deploy_previous() if previous else podium.withdraw_deploy())

    done = target.ask("deploying", made, writes=True)
    if target.json:
        write_json(done.as_json())
        return
    for agent in done.reloaded:
        write_line(agent)
    moved = f"; awake agents that move: {len(done.reloaded)}" if done.service else "; no service is running"
    say(f"deploy {done.number} is current: {_code_of(done)}{moved}")


@command
def deploys(*, target: Target) -> None:
    """List the deploys of a home, the current one last."""
    found = target.ask("asking for the deploys", lambda podium: podium.deploys())
    if target.json:
        write_json({"deploys": [each.as_json() for each in found]})
    elif not found:
        say("no deploys yet: podium deploy makes one")
    else:
        rows = [(str(each.number), _code_of(each), each.by, iso(each.made_ms)) for each in found]
        table(("DEPLOY", "BUNDLE", "BY", "MADE"), rows)


def _code_of(made: objects.Deploy) -> str:
    from podium.code.manifest import short_id  # noqa: PLC0415

    return short_id(made.bundle) if made.bundle is not None else "files of the service's machine"


def _packed(project: Project) -> tuple[MemoryBlobStore, Manifest]:
    from chronicle.blobs.memory import MemoryBlobStore  # noqa: PLC0415
    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from coordinator.registry.deploying import pack_project  # noqa: PLC0415

    blobs = MemoryBlobStore()
    with Progress() as progress:
        progress.show("packing the agents' code")
        return blobs, pack_project(project, blobs)


async def _pieces(blobs: MemoryBlobStore, manifest: Manifest) -> AsyncIterator[bytes]:
    from podium.code.transfer import sent  # noqa: PLC0415

    for piece in sent(blobs, manifest):
        yield piece
