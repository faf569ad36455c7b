"""The output of a command: pieces as text for who reads along, all of it for the record, in bounded memory."""

from __future__ import annotations

import codecs
import io
import os
import tempfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from podium.turn.ports import Environment
    from podium.turn.scope.artifacts import Artifacts

__all__ = ["CommandOutput"]

_KEPT_BYTES: Final = 64 << 10
"""Of one stream, in memory and in the record."""
_SHOWN_BYTES: Final = 16 << 10
"""Of the beginning, and of the end, of a stream that is longer."""


class CommandOutput:
    """One stream of a command. Beyond 64 KiB it is in a file without a name, and in an artifact at the end.

    Args:
        name: of the artifact.
    """

    def __init__(self, name: str, env: Environment) -> None:
        self._name = name
        self._env = env
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = bytearray()
        self._file: io.FileIO | None = None

    async def take(self, piece: bytes) -> str:
        """Add a piece, and return the text that it completes.

        Raises:
            OSError: the disk for temporary files is full.
        """
        if self._file is None and len(self._kept) + len(piece) <= _KEPT_BYTES:
            self._kept += piece
        else:
            await self._env.run_blocking(self._write, piece)
        return self._decoder.decode(piece)

    async def end(self, artifacts: Artifacts) -> tuple[str, str | None]:
        """Return the text for the record, and the id of the artifact that has all of it, if that is more.

        Raises:
            ChronicleError: the artifact could not be stored.
        """
        if self._file is None:
            return self._kept.decode(errors="replace"), None
        size = self._file.tell()
        self._file.seek(0)
        artifact_id = await artifacts.add(self._name, self._file, "text/plain")
        head = os.pread(self._file.fileno(), _SHOWN_BYTES, 0).decode(errors="replace")
        tail = os.pread(self._file.fileno(), _SHOWN_BYTES, size - _SHOWN_BYTES).decode(errors="replace")
        left_out = size - 2 * _SHOWN_BYTES
        return f"{head}\n[{left_out} bytes are left out; all of it is in artifact {artifact_id}]\n{tail}", artifact_id

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, piece: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            assert self._file is not None, "it was opened"
            piece, self._kept = bytes(self._kept + piece), bytearray()
        view = memoryview(piece)
        while view:
            view = view[self._file.write(view) :]
