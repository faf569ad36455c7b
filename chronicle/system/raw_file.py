"""A raw file whose position is a number: the base of files that are no files of the system."""

from __future__ import annotations

import errno
import io
from abc import abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["RawFile"]


class RawFile(io.RawIOBase):
    """A seekable file, read-only unless a subclass can write. A subclass reads at `_at`."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, which may be beyond the end.

        Raises:
            OSError: EINVAL: it would be negative.
        """
        start = 0 if whence == io.SEEK_SET else self._at if whence == io.SEEK_CUR else self._size()
        if start + offset < 0:
            raise OSError(errno.EINVAL, f"cannot seek to {start + offset}")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read on; 0 bytes at the end."""
        view = memoryview(buffer).cast("B")
        data = self._read(len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    @abstractmethod
    def _size(self) -> int:
        """Return the size in bytes."""

    @abstractmethod
    def _read(self, size: int) -> bytes | bytearray:
        """Return up to ``size`` bytes from the position on."""
