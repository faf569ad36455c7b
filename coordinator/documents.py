"""Documents of a home: small values that are read and replaced as a whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

from chronicle.errors import StorageRefused
from chronicle.system.atomic_files import replacing, sync_directory, sync_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DRAINED", "MODELS", "QUARANTINE", "Documents", "FileDocuments"]

DRAINED: Final = "drained.json"
"""The document of the nodes that are to have no agents (`coordinator.fleet.nodes.drains`)."""
MODELS: Final = "models.json"
"""The document of the profiles of models (`coordinator.models.config_file`)."""
QUARANTINE: Final = "quarantine.json"
"""The document of the agents that get processes of their own (`coordinator.fleet.deaths.quarantine`)."""


class Documents(Protocol):
    """Named documents. Safe to share between threads."""

    def read(self, name: str) -> bytes | None:
        """Return a document; ``None`` if there is none.

        Raises:
            StorageRefused: it cannot be read.
        """
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace a document; durable on return.

        Raises:
            StorageRefused: it cannot be written.
        """
        ...

    def stamp(self, name: str) -> object:
        """Return a cheap value that changes when a document is replaced; ``None`` if there is none."""
        ...

    def place(self, name: str) -> str:
        """Return where a document is, for messages."""
        ...


class FileDocuments:
    """Documents in files of a directory, readable for their owner only.

    Args:
        directory: the directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        """See `Documents`."""
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageRefused(f"{self.place(name)} cannot be read: {error.strerror}") from error

    def write(self, name: str, data: bytes) -> None:
        """See `Documents`."""
        try:
            with replacing(self._directory / name) as new:
                descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                sync_file(new)
            sync_directory(self._directory)
        except OSError as error:
            raise StorageRefused(f"{self.place(name)} cannot be written: {error.strerror}") from error

    def stamp(self, name: str) -> object:
        """See `Documents`."""
        try:
            found = (self._directory / name).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def place(self, name: str) -> str:
        """See `Documents`."""
        return str(self._directory / name)
