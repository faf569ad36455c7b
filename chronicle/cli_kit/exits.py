"""Exit codes: one table per command from errors to codes, from which its help and its documentation are made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from chronicle import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CHRONICLE_ERRORS", "ExitCode", "ExitTable"]


class ExitCode(IntEnum):
    """Exit codes that every command has; a command with more codes has an enumeration of its own."""

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


CHRONICLE_ERRORS: Final[Mapping[type[BaseException] | str, ExitCode]] = {
    errors.ChronicleError: ExitCode.ERROR,
    errors.NotFound: ExitCode.NOT_FOUND,
    errors.BlobMissing: ExitCode.DAMAGED,  # A blob is only read because stored data refers to it.
    errors.InvalidInput: ExitCode.USAGE,
    errors.Conflict: ExitCode.CONFLICT,
    errors.StaleEpoch: ExitCode.CONFLICT,
    errors.Corrupt: ExitCode.DAMAGED,
    errors.UnsupportedFormat: ExitCode.TOO_NEW,
    errors.Unavailable: ExitCode.UNAVAILABLE,
    errors.StorageRefused: ExitCode.OS_ERROR,
    OSError: ExitCode.OS_ERROR,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
}
"""The rows that the tables of all commands have in common."""

Code = TypeVar("Code", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class ExitTable(Generic[Code]):
    """The exit codes of one command.

    Attributes:
        meanings: the meaning of each code, in the words of the help and the documentation.
        errors: the code of each error class; a subclass has the code of its nearest ancestor. A class that is slow to
            import is named by a string, ``module.Class``.
        bug: the code of an error that has no ancestor in the table.
    """

    meanings: Mapping[Code, str]
    errors: Mapping[type[BaseException] | str, Code]
    bug: Code

    def code(self, error: BaseException) -> Code:
        """Return the exit code of an error."""
        for kind in type(error).__mro__:
            for key in (kind, f"{kind.__module__}.{kind.__qualname__}"):
                if key in self.errors:
                    return self.errors[key]
        return self.bug

    def help_text(self) -> str:
        """Return the table for the end of a command's help."""
        return "\b\nExit codes:\n" + "\n".join(f"{code:>3}  {meaning}" for code, meaning in self.meanings.items())

    def markdown_rows(self) -> list[str]:
        """Return the rows of the table in the documentation."""
        return [f"| {code} | {meaning} |" for code, meaning in self.meanings.items()]
