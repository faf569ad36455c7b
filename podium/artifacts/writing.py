"""Storing the contents of a turn's artifacts.

Contents are buffered up to a memory bound and written to the blob store beyond it; the rest is written before the
turn's commit. A failed turn leaves unreferenced blobs, for gc (docs/internals/gc.md).
"""

from __future__ import annotations

import io
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

from chronicle.blobs.buffer import BlobBuffer
from chronicle.errors import InvalidInput, WrongType
from chronicle.workspace.content.content import store_bytes, store_file
from podium.errors import ContextMisuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from _typeshed import WriteableBuffer

    from chronicle.blobs.port import BlobStore
    from chronicle.workspace.content.content import Content

__all__ = ["ArtifactWriter"]


class ArtifactWriter:
    """Stores contents of artifacts for one turn. Its methods block; they are thread-safe.

    Args:
        blobs: the destination.
        root: returns the workspace's directory; artifacts may be files in it.
        limit_bytes: most bytes of one artifact.
    """

    def __init__(self, blobs: BlobStore, root: Callable[[], Path], limit_bytes: int) -> None:
        self._blobs = blobs
        self._root = root
        self.limit_bytes = limit_bytes
        """Most bytes of one artifact."""
        self._buffer: BlobBuffer | None = None
        # A call whose caller was cancelled continues in its thread, so the threads are serialized here.
        self._lock = threading.Lock()
        self._over = False

    def take(self, name: str, data: bytes | str | Path | io.FileIO) -> Content:
        """Store the content of an artifact; it is durable after `flush` or `keep`.

        Args:
            name: for messages.
            data: see `podium.agent.AgentContext.add_artifact`; or an open file, which is read to its end.

        Raises:
            WrongType: it is none of these.
            InvalidInput: it is too large, not Unicode text, or not a file of the workspace.
            OSError: the file cannot be read.
            PodiumError: the turn is over.
            Unavailable: the blob store could not be reached.
        """
        if isinstance(data, str):
            try:
                data = data.encode()
            except UnicodeEncodeError as error:
                raise InvalidInput(f"artifact {name} is not Unicode text ({error}); give its bytes") from error
        if isinstance(data, bytes | bytearray | memoryview):
            data = bytes(data)
            self._check_size(name, len(data))
            with self._lock:
                return store_bytes(self._open_buffer(), data)
        if isinstance(data, io.FileIO):
            with self._lock:
                return store_file(self._open_buffer(), cast("BinaryIO", _Source(self, name, data)))
        if not isinstance(data, Path):
            raise WrongType(f"an artifact is made of bytes, a str or a Path, not {type(data).__name__}")
        with self._opened(name, data) as file, self._lock:
            return store_file(self._open_buffer(), cast("BinaryIO", _Source(self, name, file)))

    def keep(self) -> None:
        """Close, and make the stored contents durable.

        Raises:
            Unavailable: the blob store could not be reached.
        """
        self.close()
        self.flush()

    def flush(self) -> None:
        """Make the stored contents durable.

        Raises:
            Unavailable: the blob store could not be reached.
        """
        with self._lock:
            if self._buffer is not None:
                self._buffer.flush()

    def close(self) -> None:
        """Refuse further contents; a store in progress in another thread ends soon."""
        self._over = True

    def _check_size(self, name: str, size: int) -> None:
        if self._over:
            raise ContextMisuse(f"artifact {name} came too late: the turn is over")
        if size > self.limit_bytes:
            raise InvalidInput(
                f"artifact {name} has more than {self.limit_bytes} bytes; split it, or raise the class's "
                "max_artifact_bytes"
            )

    def _open_buffer(self) -> BlobBuffer:
        if self._buffer is None:
            self._buffer = BlobBuffer(self._blobs)
        return self._buffer

    def _opened(self, name: str, path: Path) -> io.FileIO:
        """Open a file of the workspace."""
        root = self._root()
        real = Path(os.path.realpath(root / path, strict=True))
        if not real.is_relative_to(os.path.realpath(root)):
            raise InvalidInput(
                f"{path} is not in the workspace, so it cannot be artifact {name}; read it, and give its bytes"
            )
        # O_NONBLOCK: the open of a named pipe would wait for its other end.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidInput(f"{path} is not a file, so it cannot be artifact {name}")
            self._check_size(name, found.st_size)
            return io.FileIO(descriptor)
        except BaseException:
            os.close(descriptor)
            raise


class _Source(io.RawIOBase):
    """A file while it is stored: it may grow meanwhile, and the turn may end."""

    def __init__(self, writer: ArtifactWriter, name: str, file: io.FileIO) -> None:
        super().__init__()
        self._writer = writer
        self._name = name
        self._file = file
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int | None:
        count = self._file.readinto(into)
        self._size += count or 0
        self._writer._check_size(self._name, self._size)  # noqa: SLF001
        return count
