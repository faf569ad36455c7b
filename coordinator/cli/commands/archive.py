"""``podium export`` and ``podium import``: an agent as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coordinator.cli.lookup import find_agent
from coordinator.cli.options import (
    DEFAULT_HOME,
    AgentArgument,
    ApiKeyOption,
    BlobsUrlOption,
    DebugOption,
    HomeOption,
    JsonOption,
    UrlOption,
)
from coordinator.cli.stores import opened_blobs, opened_journal, read_journal
from coordinator.cli.views.archives import show_export, show_import

__all__ = ["export", "import_"]


def export(
    agent: AgentArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file; it must not exist.")],
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Write an agent to one file: all its events, and all versions of its files.

    Everything is verified while it is read. The agent may be running; messages in its inbox are not exported.
    """
    if url:
        from coordinator.cli.remote import archives as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.export(Gateway(url, api_key), agent, file, json=json)
        return
    from coordinator.operations.archives import exported_object, new_file  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415  slow to import, and --help needs none
    from podium.history.archive import export_agent  # noqa: PLC0415

    path = new_file(file)
    with read_journal(home) as store, opened_blobs(home) as blobs:
        manifest = export_agent(store, blobs, Address.of(find_agent(store, agent)), path)
    show_export(exported_object(manifest.agent, manifest, path.stat().st_size).as_json(), file, json=json)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What podium export wrote.")],
    *,
    name: Annotated[
        str | None, typer.Option("--as", metavar="TYPE/KEY", help="Its address here; by default the exported one.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    blobs_url: BlobsUrlOption = "",
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Import an agent from a file, on this machine or another one.

    The whole file is verified before anything is written. The home is created if it does not exist.
    """
    if url:
        from coordinator.cli.remote import archives as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.import_(Gateway(url, api_key), file, name, json=json)
        return
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.ids import IdSource  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.operations.archives import imported_object  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415
    from podium.history.archive import Archive  # noqa: PLC0415
    from podium.history.archive_import import import_agent  # noqa: PLC0415

    with Archive(file) as archive:
        target = Address.parse(name or archive.manifest.agent)
        archive.check()  # Before a home is created for it.
        Home(home).create(blobs_url)
        with opened_journal(home) as store, opened_blobs(home) as blobs:
            imported = import_agent(store, blobs, archive, target, IdSource(), SystemClock().now_ms())
    show_import(imported_object(str(target), archive.manifest, imported.head, imported.blobs).as_json(), json=json)
