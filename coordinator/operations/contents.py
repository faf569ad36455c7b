"""`HomeContents`: the files and artifacts of a home's agents, and whole agents as files."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from chronicle.clock import SystemClock
from chronicle.ids import IdSource
from chronicle.lazy_exports import lazy_module
from coordinator.operations import objects
from coordinator.operations.quota_checks import QuotaChecks
from coordinator.operations.stores import HomeStores
from podium.address import Address
from podium.errors import AgentAwake

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable
    from contextlib import AbstractAsyncContextManager
    from typing import BinaryIO, Concatenate

    from chronicle.blobs.port import BlobStore
    from chronicle.clock import Clock
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.content.content import Content
    from coordinator.home import Home
    from coordinator.operations import archives, listing, uploads
    from coordinator.operations.fleet import Fleet, FleetLink
    from podium.address import Address
    from podium.artifacts.artifacts import Artifact
    from podium.turn import upload
else:  # One call needs few of them, and a command makes few calls.
    archives = lazy_module("coordinator.operations.archives")
    listing = lazy_module("coordinator.operations.listing")
    uploads = lazy_module("coordinator.operations.uploads")
    upload = lazy_module("podium.turn.upload")

__all__ = ["HomeContents"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_UPLOAD_BYTES: Final = 1024 * 1024 * 1024


class HomeContents:
    """The files and artifacts of a home's agents; `coordinator.operations.agents.HomeAgents` has the rest.

    Args:
        home: an existing home.
        link: the connection to its service.
        clock: the time.
    """

    def __init__(self, home: Home, link: FleetLink, clock: Clock | None = None) -> None:
        self._stores = HomeStores(home)
        self._link = link
        self._clock = clock or SystemClock()
        self._ids = IdSource()
        self._quotas = QuotaChecks(self._stores, self._clock)

    def close(self) -> None:
        """Close the stores; the link belongs to the caller."""
        self._quotas.close()
        self._stores.close()

    @property
    def stores(self) -> HomeStores:
        """The stores of the home."""
        return self._stores

    @property
    def clock(self) -> Clock:
        """The time."""
        return self._clock

    @property
    def quotas(self) -> QuotaChecks:
        """The quotas of the home's tenants."""
        return self._quotas

    async def read(
        self, call: Callable[Concatenate[JournalStore, BlobStore, _P], _T], *of: _P.args, **by: _P.kwargs
    ) -> _T:
        """Return what an operation reads that needs nothing but the stores, such as `history.state_object`."""
        return await self._stores.read(call, *of, **by)

    # -- files and artifacts --------------------------------------------------------------------------------------

    async def put_file(
        self, address: Address, path: str, content: AsyncIterable[bytes], most_bytes: int = _UPLOAD_BYTES
    ) -> objects.FileChanged:
        """Put a file, as a turn of its own that runs no code of the agent; one that is awake is put to sleep for it.

        Args:
            content: its bytes, in pieces. If they end with an exception, nothing is committed.
            most_bytes: the most that are accepted.

        Raises:
            UnknownAgent: there is no such agent, or it never started.
            NotAFile: something else than a file is at the path, or above it.
            InvalidInput: no file can have that path.
            UploadTooLarge: the content is longer than ``most_bytes``.
            QuotaExceeded: the tenant would have more bytes than it may have.
        """
        path = upload.upload_path(path)
        await self._listed(address)
        await self._quotas.check(lambda quotas: quotas.check_upload(address, 0))
        async with uploads.received(content, most_bytes) as (file, size_bytes):
            await self._quotas.check(lambda quotas: quotas.check_upload(address, size_bytes))
            stored = await self._stores.write(lambda _, blobs: upload.store_content(blobs, file))
        changed = await self._changed(address, path, stored)
        return _changed_object(address, path, changed, stored)

    async def delete_file(self, address: Address, path: str) -> objects.FileChanged:
        """Delete a file or symlink, as a turn of its own; see `put_file`.

        Raises:
            UnknownFile: nothing is there.
        """
        path = upload.upload_path(path)
        return _changed_object(address, path, await self._changed(address, path, None), None)

    def open_artifact(self, artifact: Artifact) -> BinaryIO:
        """Open the content of an artifact for reading, seekable; reads fetch blobs, and may block."""
        from podium.artifacts.artifacts import open_artifact  # noqa: PLC0415

        return open_artifact(self._stores.blobs, artifact)

    # -- whole agents ---------------------------------------------------------------------------------------------

    def exported(self, address: Address) -> AbstractAsyncContextManager[archives.Exported]:
        """Write an agent to a temporary file, which the context has; see `archives.exported`."""
        return archives.exported(self._stores, address)

    async def import_agent(
        self, address: Address, content: AsyncIterable[bytes], most_bytes: int = _UPLOAD_BYTES
    ) -> objects.Imported:
        """Create an agent from an archive; nothing is written before the whole archive is verified.

        Args:
            address: of the new agent, whatever the exported one's was.
            content: the archive's bytes, in pieces.
            most_bytes: the most that are accepted.

        Raises:
            AgentExists: there is an agent of that address.
            InvalidInput: the content is no archive, or a damaged one.
            UploadTooLarge: it is longer than ``most_bytes``.
            QuotaExceeded: the tenant has as many agents, or bytes, as it may have.
        """
        await self._quotas.check(lambda quotas: quotas.check_fork(address))
        async with uploads.received(content, most_bytes) as (file, size_bytes):
            await self._quotas.check(lambda quotas: quotas.check_upload(address, size_bytes))
            now_ms = self._clock.now_ms()
            return await self._stores.write(archives.import_from, file, address, self._ids, now_ms)

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _listed(self, address: Address) -> objects.Agent:
        """Return what the journal has of an agent.

        Raises:
            UnknownAgent: there is none.
        """
        now_ms = self._clock.now_ms()
        return await self._stores.read_journal(lambda store: listing.agent_object(store, address, now_ms))

    async def _changed(self, address: Address, path: str, content: Content | None) -> upload.FileChanged:
        now_ms = self._clock.now_ms()
        try:
            changed = await self._stores.write(upload.change_file, address, path, content, self._ids, now_ms)
        except AgentAwake as awake:
            return await (await self._service_of(awake)).change_file(str(address), path, content)
        await self._wake_if_waiting(address)
        return changed

    async def _wake_if_waiting(self, address: Address) -> None:
        """Have the service deliver messages that were refused by a lease held here."""
        if (await self._listed(address)).pending:
            await self._poke(address)

    async def _service_of(self, awake: AgentAwake) -> Fleet:
        """Return the service that has an agent awake.

        Raises:
            AgentAwake: none runs: the lease of a host that died is still in force.
        """
        from coordinator.service.client import ServiceError  # noqa: PLC0415

        try:
            return await self._link.client()
        except ServiceError as error:
            raise awake from error

    async def _poke(self, address: Address) -> None:
        """Have the service deliver the pending messages of an agent; one that does not run does so at its start."""
        from coordinator.service.client import ServiceError  # noqa: PLC0415

        with suppress(ServiceError):
            await (await self._link.client()).poke(str(address))


def _changed_object(
    address: Address, path: str, changed: upload.FileChanged, content: Content | None
) -> objects.FileChanged:
    return objects.FileChanged(
        agent=address.name,
        turn=changed.turn,
        version=changed.version,
        path=upload.shown_path(path),
        size=content.size if content is not None else 0,
        hash=content.id if content is not None else None,
        iteration=changed.iteration,
    )
