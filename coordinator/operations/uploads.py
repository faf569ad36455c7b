"""The content of an upload while it is received: a temporary file without a name, which a crash leaves nothing of."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

from coordinator.operations.errors import UploadTooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator
    from typing import BinaryIO

__all__ = ["received"]

_IN_MEMORY_BYTES: Final = 1024 * 1024
"""Smaller contents do not reach the disk before they are blobs."""


@asynccontextmanager
async def received(content: AsyncIterable[bytes], most_bytes: int) -> AsyncIterator[tuple[BinaryIO, int]]:
    """Receive all of a content; the context has it as a file, at its beginning, and its size in bytes.

    Raises:
        UploadTooLarge: it is longer than ``most_bytes``.
    """
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
        size = 0
        async for piece in content:
            size += len(piece)
            if size > most_bytes:
                raise UploadTooLarge(f"a file of more than {most_bytes} bytes cannot be uploaded")
            await asyncio.to_thread(file.write, piece)
        file.seek(0)
        yield cast("BinaryIO", file), size
