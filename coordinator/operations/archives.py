"""Agents as files: an archive of one is written to a temporary file, and read from one."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, InvalidInput, UnsupportedFormat
from coordinator.operations import objects
from podium.history.archive import Archive, export_agent
from podium.history.archive_import import import_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import BinaryIO

    from chronicle.blobs.port import BlobStore
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Head
    from coordinator.operations.stores import HomeStores
    from podium.address import Address
    from podium.history.archive import Manifest

__all__ = ["Exported", "exported", "exported_object", "import_from", "imported_object", "new_file"]

_FILE: Final = "agent.podium"


@dataclass(frozen=True, slots=True)
class Exported:
    """An archive that was written."""

    path: Path
    size_bytes: int
    manifest: Manifest


@asynccontextmanager
async def exported(stores: HomeStores, address: Address) -> AsyncIterator[Exported]:
    """Write an agent to a temporary file, which is there while the context lasts; the agent may be running.

    Raises:
        UnknownAgent: there is none, or it never started.
        Corrupt: stored data is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="podium-export-") as directory:
        path = Path(directory) / _FILE
        manifest = await stores.read(export_agent, address, path)
        size_bytes = (await asyncio.to_thread(path.stat)).st_size
        yield Exported(path, size_bytes, manifest)


def import_from(
    store: JournalStore, blobs: BlobStore, content: BinaryIO, target: Address, ids: IdSource, now_ms: int
) -> objects.Imported:
    """Create an agent from an archive, which is verified as a whole before anything is written.

    Args:
        content: at its beginning.

    Raises:
        InvalidInput: it is no archive of an agent, or is damaged, or a newer version wrote it.
        AgentExists: there is an agent of that address already.
        Conflict: the store has one of its branches up to an earlier event, or with other events, or in another tenant.
    """
    with tempfile.TemporaryDirectory(prefix="podium-import-") as directory:
        path = Path(directory) / _FILE
        with path.open("xb") as file:
            shutil.copyfileobj(content, file)
        try:
            with Archive(path) as archive:
                archive.check()
        except (Corrupt, UnsupportedFormat) as error:
            raise InvalidInput(str(error).replace(str(path), "the archive")) from error
        with Archive(path) as archive:
            made = import_agent(store, blobs, archive, target, ids, now_ms)
            return imported_object(target.name, archive.manifest, made.head, made.blobs)


def new_file(path: Path) -> Path:
    """Return the path of an archive that is to be written.

    Raises:
        InvalidInput: something is there already.
    """
    if path.exists():
        raise InvalidInput(f"{path} exists already; name another file")
    return path


def exported_object(agent: str, manifest: Manifest, size_bytes: int) -> objects.Exported:
    """Return an export as a JSON object."""
    return objects.Exported(
        agent=agent,
        branch=manifest.head.branch_id,
        version=manifest.head.seq,
        turn=manifest.head.turn,
        hash=manifest.head.hash,
        events=manifest.events,
        blobs=manifest.blobs,
        bytes=size_bytes,
    )


def imported_object(agent: str, manifest: Manifest, head: Head, new_blobs: int) -> objects.Imported:
    """Return an import as a JSON object."""
    return objects.Imported(
        agent=agent,
        exported_as=manifest.agent,
        branch=head.branch_id,
        version=head.seq,
        turn=head.turn,
        hash=head.hash,
        events=manifest.events,
        new_blobs=new_blobs,
    )
