"""One table: which error ends ``chronicle`` with which exit code; the help text and ``docs/cli.md`` say the same."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from chronicle import errors

__all__ = ["MEANINGS", "ExitCode", "exit_code"]


class ExitCode(IntEnum):
    """What a process of ``chronicle`` ended with; the same numbers as ``podium``'s."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 22
    TOO_NEW = 42
    UNAVAILABLE = 50
    CONFLICT = 51
    DAMAGED = 60
    BUG = 70
    OS_ERROR = 74
    INTERRUPTED = 130


MEANINGS: Final = {
    ExitCode.OK: "done",
    ExitCode.ERROR: "an error that has no code of its own; stderr says which",
    ExitCode.USAGE: "the command line cannot be understood, or a value in it cannot be used",
    ExitCode.NOT_FOUND: "no such store, workspace, commit, path or iteration",
    ExitCode.TOO_NEW: "a newer version wrote the store",
    ExitCode.UNAVAILABLE: "a mount or the blob store does not answer, or FUSE cannot be used",
    ExitCode.CONFLICT: "someone else was first, or is at it; try again",
    ExitCode.DAMAGED: "stored bytes are missing, or not what was written",
    ExitCode.BUG: "an unexpected exception: a bug",
    ExitCode.OS_ERROR: "the operating system refused: disk full, I/O error, permissions",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}
_ERRORS: Final[dict[type[BaseException], ExitCode]] = {
    errors.ChronicleError: ExitCode.ERROR,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.BlobMissing: ExitCode.DAMAGED,  # nobody asks for one but because something stored refers to it
    errors.InvalidInput: ExitCode.USAGE,
    errors.Conflict: ExitCode.CONFLICT,
    errors.StaleEpoch: ExitCode.CONFLICT,
    errors.Corrupt: ExitCode.DAMAGED,
    errors.UnsupportedFormat: ExitCode.TOO_NEW,
    errors.Unavailable: ExitCode.UNAVAILABLE,
    errors.StorageRefused: ExitCode.OS_ERROR,
    OSError: ExitCode.OS_ERROR,
}
"""A subclass has the code of its nearest ancestor here."""


def exit_code(error: Exception) -> ExitCode:
    """Return the code of an error; `ExitCode.BUG` for one that nobody expected."""
    return next((_ERRORS[kind] for kind in type(error).__mro__ if kind in _ERRORS), ExitCode.BUG)
