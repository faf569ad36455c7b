"""The exit codes of ``chronicle``; its help and ``docs/chronicle.md`` show the same table."""

from __future__ import annotations

from typing import Final

from chronicle.cli_kit.exits import CHRONICLE_ERRORS, ExitCode, ExitTable

__all__ = ["EXITS", "ExitCode"]

EXITS: Final = ExitTable(
    meanings={
        ExitCode.OK: "done",
        ExitCode.ERROR: "an error that has no code of its own; stderr says which",
        ExitCode.USAGE: "the command line cannot be understood, or a value in it cannot be used",
        ExitCode.NOT_FOUND: "no such store, workspace, commit, path or iteration",
        ExitCode.TOO_NEW: "a newer version wrote the store",
        ExitCode.UNAVAILABLE: "a mount or the blob store does not answer, or FUSE cannot be used",
        ExitCode.CONFLICT: "a concurrent change was first, or is in progress; try again",
        ExitCode.DAMAGED: "stored bytes are missing, or not what was written",
        ExitCode.BUG: "an unexpected exception: a bug",
        ExitCode.OS_ERROR: "the operating system refused: disk full, I/O error, permissions",
        ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
    },
    errors={**CHRONICLE_ERRORS, BrokenPipeError: ExitCode.OK},
    bug=ExitCode.BUG,
)
