"""``podium export`` and ``podium import``: an agent as one file.

A home on this machine writes and reads the file itself: through its client the file would be copied first.
"""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from coordinator.cli.lookup import find_agent
from coordinator.cli.options import AgentArgument, BlobsUrlOption, JournalUrlOption, command, urls_of
from coordinator.cli.stores import opened_blobs, opened_journal, read_journal
from coordinator.cli.target import Target
from coordinator.cli.views.archives import show_export, show_import

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    from coordinator.client.async_client import AsyncPodium
    from podium.address import Address
    from podium.history.archive import Archive, Manifest

__all__ = ["export", "import_"]

_PIECE_BYTES: Final = 256 * 1024


@command
def export(
    agent: AgentArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file; it must not exist.")],
    *,
    target: Target,
) -> None:
    """Write an agent to one file: all its events, and all versions of its files.

    Everything is verified while it is read. The agent may be running; messages in its inbox are not exported.
    """
    from coordinator.operations.archives import exported_object, new_file  # noqa: PLC0415  slow to import
    from podium.address import Address  # noqa: PLC0415
    from podium.history.archive import export_agent  # noqa: PLC0415

    path = new_file(file)
    if target.url:
        name, manifest = agent, _received(target, agent, path)
    else:
        with read_journal(target.home) as store, opened_blobs(target.home) as blobs:
            manifest = export_agent(store, blobs, Address.of(find_agent(store, agent)), path)
        name = manifest.agent
    show_export(exported_object(name, manifest, path.stat().st_size).as_json(), file, json=target.json)


def _received(target: Target, agent: str, path: Path) -> Manifest:
    """Write the archive that a gateway sends to a new file, verified."""
    import asyncio  # noqa: PLC0415

    from chronicle.system.atomic_files import replacing  # noqa: PLC0415
    from podium.history.archive import Archive  # noqa: PLC0415

    with replacing(path) as partial:

        async def read(podium: AsyncPodium) -> None:
            with partial.open("xb") as content:
                async with aclosing(podium.export(agent)) as chunks:
                    async for chunk in chunks:
                        await asyncio.to_thread(content.write, chunk)

        target.ask(f"exporting {agent}", read, agent)
        with Archive(partial) as archive:
            archive.check()
            return archive.manifest


@command
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What podium export wrote.")],
    *,
    name: Annotated[
        str | None, typer.Option("--as", metavar="TYPE/KEY", help="Its address here; by default the exported one.")
    ] = None,
    blobs_url: BlobsUrlOption = "",
    journal_url: JournalUrlOption = "",
    target: Target,
) -> None:
    """Import an agent from a file, on this machine or another one.

    The whole file is verified before anything is written. The home is created if it does not exist.
    """
    from podium.address import Address  # noqa: PLC0415  slow to import, and --help needs none
    from podium.history.archive import Archive  # noqa: PLC0415

    with Archive(file) as archive:
        address = Address.parse(name or archive.manifest.agent)
        archive.check()  # Before a home is created for it.
        if not target.url:
            show_import(_imported(target.home, (blobs_url, journal_url), archive, address), json=target.json)
            return

    async def send(podium: AsyncPodium) -> dict[str, Any]:
        with file.open("rb") as content:
            return (await podium.import_archive(str(address), _pieces(content))).as_json()

    show_import(target.ask(f"importing {address}", send), json=target.json)


def _imported(home: Path, urls: tuple[str, str], archive: Archive, address: Address) -> dict[str, Any]:
    """Import an archive into a home on this machine."""
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from chronicle.ids import IdSource  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home  # noqa: PLC0415
    from coordinator.operations.archives import imported_object  # noqa: PLC0415
    from podium.history.archive_import import import_agent  # noqa: PLC0415

    create_home(Home(home), *urls_of(None, *urls))
    with opened_journal(home) as store, opened_blobs(home) as blobs:
        done = import_agent(store, blobs, archive, address, IdSource(), SystemClock().now_ms())
    return imported_object(str(address), archive.manifest, done.head, done.blobs).as_json()


async def _pieces(content: BinaryIO) -> AsyncIterator[bytes]:
    import asyncio  # noqa: PLC0415

    while piece := await asyncio.to_thread(content.read, _PIECE_BYTES):
        yield piece
