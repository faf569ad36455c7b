"""Commands that move an agent between a file here and a remote home."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from chronicle.system.atomic_files import replacing
from coordinator.cli.remote.connection import ask
from coordinator.cli.views.archives import show_export, show_import
from coordinator.operations.archives import exported_object, new_file
from podium.history.archive import Archive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import BinaryIO

    from coordinator.cli.remote.connection import Gateway
    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.objects import Imported

__all__ = ["export", "import_"]

_PIECE_BYTES = 256 * 1024


def export(gateway: Gateway, agent: str, file: Path, *, json: bool) -> None:
    """Write an agent to a new file, and verify it."""
    with replacing(new_file(file)) as partial:

        async def read(podium: AsyncPodium) -> None:
            with partial.open("xb") as content:
                async with aclosing(podium.export(agent)) as chunks:
                    async for chunk in chunks:
                        await asyncio.to_thread(content.write, chunk)

        ask(gateway, f"exporting {agent}", read)
        with Archive(partial) as archive:
            archive.check()
            manifest = archive.manifest
    show_export(exported_object(agent, manifest, file.stat().st_size).as_json(), file, json=json)


def import_(gateway: Gateway, file: Path, name: str | None, *, json: bool) -> None:
    """Create an agent from a file, which is verified here first."""
    with Archive(file) as archive:
        archive.check()
        target = name or archive.manifest.agent

    async def send(podium: AsyncPodium) -> Imported:
        with file.open("rb") as content:
            return await podium.import_archive(target, _pieces(content))

    show_import(ask(gateway, f"importing {target}", send).as_json(), json=json)


async def _pieces(content: BinaryIO) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(content.read, _PIECE_BYTES):
        yield piece
