"""``podium export`` and ``podium import``: an agent as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import DEFAULT_HOME, AgentArgument, BlobsUrlOption, DebugOption, HomeOption, JsonOption
from coordinator.cli.stores import opened_blobs, opened_journal, read_journal

if TYPE_CHECKING:
    from chronicle.journal.records import Head

__all__ = ["export", "import_"]


def export(
    agent: AgentArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file; it must not exist.")],
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Write an agent to one file: all its events, and all versions of its files.

    Everything is verified while it is read. The agent may be running; messages in its inbox are not exported.
    """
    from chronicle.errors import InvalidInput  # noqa: PLC0415  slow to import, and --help needs none
    from podium.address import Address  # noqa: PLC0415
    from podium.history.archive import export_agent  # noqa: PLC0415

    if file.exists():
        raise InvalidInput(f"{file} exists already; name another file")
    with read_journal(home) as store, opened_blobs(home) as blobs:
        manifest = export_agent(store, blobs, Address.of(find_agent(store, agent)), file)
    size = file.stat().st_size
    if json:
        counts = {"events": manifest.events, "blobs": manifest.blobs, "bytes": size}
        write_json({"agent": manifest.agent, "file": str(file), **_head(manifest.head), **counts})
        return
    write_line(f"{manifest.agent} after turn {manifest.head.turn}: {manifest.events} events, {manifest.blobs} blobs")
    say(f"head {manifest.head.hash}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What podium export wrote.")],
    *,
    name: Annotated[
        str | None, typer.Option("--as", metavar="TYPE/KEY", help="Its address here; by default the exported one.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    blobs_url: BlobsUrlOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Import an agent from a file, on this machine or another one.

    The whole file is verified before anything is written. The home is created if it does not exist.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.ids import IdSource  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415
    from podium.history.archive import Archive  # noqa: PLC0415
    from podium.history.archive_import import import_agent  # noqa: PLC0415

    with Archive(file) as archive:
        manifest = archive.manifest
        target = Address.parse(name or manifest.agent)
        archive.check()  # Before a home is created for it.
        Home(home).create(blobs_url)
        with opened_journal(home) as store, opened_blobs(home) as blobs:
            imported = import_agent(store, blobs, archive, target, IdSource(), SystemClock().now_ms())
    if json:
        counts = {"events": manifest.events, "new_blobs": imported.blobs}
        write_json({"agent": str(target), "exported_as": manifest.agent, **_head(imported.head), **counts})
        return
    write_line(f"{target} after turn {imported.head.turn}: {manifest.events} events, {imported.blobs} new blobs")
    say(f"head {imported.head.hash}")


def _head(head: Head) -> dict[str, Any]:
    return {"branch": head.branch_id, "version": head.seq, "turn": head.turn, "hash": head.hash}
