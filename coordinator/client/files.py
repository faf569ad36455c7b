"""The files of an agent's workspace, as a client has them."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from coordinator.client.backends.port import Request
from coordinator.client.paging import AsyncPages, items_of
from coordinator.client.texts import clean_path
from coordinator.operations import objects

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from coordinator.client.backends.port import Backend
    from coordinator.operations.objects import DirectoryEntry, FileChanged, FileVersion
    from podium.address import Address

__all__ = ["AsyncFiles"]


class AsyncFiles:
    """The committed files of one agent; from `AsyncPodium.files`. Paths are relative to the workspace's root."""

    def __init__(self, backend: Backend, agent: Address) -> None:
        self._backend = backend
        self._agent = agent

    async def read(self, path: str, *, turn: int | None = None, iteration: int | None = None) -> bytes:
        """Return the content of a file.

        Args:
            turn: as it was at the end of this turn; now by default.
            iteration: this version of it instead.

        Raises:
            ResourceNotFound: there is no such file, turn or version.
            InvalidRequest: the path names a directory.
        """
        async with aclosing(self.chunks(path, turn=turn, iteration=iteration)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def chunks(
        self, path: str, *, turn: int | None = None, iteration: int | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the content of a file in pieces, for one that is too large for memory; otherwise as `read`."""
        async with aclosing(self._backend.read_file(self._agent, clean_path(path), turn, iteration)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def list(self, path: str = "", *, turn: int | None = None) -> Sequence[DirectoryEntry]:
        """Return the names in a directory, the workspace's root by default.

        Raises:
            ResourceNotFound: there is no such directory, or no such turn.
            InvalidRequest: the path names a file.
        """
        return (await self._backend.directory(self._agent, clean_path(path) if path else "", turn)).entries

    async def history(self, path: str) -> Sequence[FileVersion]:
        """Return the versions of a path, oldest first.

        Raises:
            ResourceNotFound: there never was such a path.
        """
        pages = items_of(lambda at: AsyncPages(self._backend).file_history(str(self._agent), path, cursor=at))
        return tuple([version async for version in pages])

    async def upload(self, path: str, content: bytes | AsyncIterator[bytes]) -> FileChanged:
        """Write a file, and the directories above it, as a turn of its own, after the running one.

        Args:
            content: its bytes, whole or in pieces.

        Raises:
            InvalidRequest: the path names a directory, or the content is too large.
        """
        request = Request("PUT", "files/{path}", "put_file", lambda: objects.FileChanged)
        return await self._backend.call(request, self._agent, path=clean_path(path), content=content)

    async def delete(self, path: str) -> FileChanged:
        """Delete a file as a turn of its own, after the running one. Its versions can still be read.

        Raises:
            ResourceNotFound: there is no such file.
        """
        request = Request("DELETE", "files/{path}", "delete_file", lambda: objects.FileChanged)
        return await self._backend.call(request, self._agent, path=clean_path(path))
