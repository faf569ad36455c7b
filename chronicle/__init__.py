"""Chronicle, the durable record: a journal of events, a store of blobs, and versioned workspaces.

It knows nothing of agents, Ray or HTTP. What programs import is here: stores of workspaces, their file system, and the
errors. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from chronicle.errors import (
        BlobMissing,
        BranchInUse,
        BranchVersionConflict,
        ChronicleError,
        Conflict,
        Corrupt,
        IdempotencyConflict,
        InboxFull,
        InvalidInput,
        LeaseHeld,
        NotFound,
        OverQuota,
        StaleEpoch,
        StorageRefused,
        Unavailable,
        UnsupportedFormat,
    )
    from chronicle.filesystem import ChronicleFileSystem
    from chronicle.repository import Check, Committed, Repository, Stats

__all__ = [
    "BlobMissing",
    "BranchInUse",
    "BranchVersionConflict",
    "Check",
    "ChronicleError",
    "ChronicleFileSystem",
    "Committed",
    "Conflict",
    "Corrupt",
    "IdempotencyConflict",
    "InboxFull",
    "InvalidInput",
    "LeaseHeld",
    "NotFound",
    "OverQuota",
    "Repository",
    "StaleEpoch",
    "Stats",
    "StorageRefused",
    "Unavailable",
    "UnsupportedFormat",
]

_MODULES: Final = {
    "BlobMissing": "chronicle.errors",
    "BranchInUse": "chronicle.errors",
    "BranchVersionConflict": "chronicle.errors",
    "Check": "chronicle.repository",
    "ChronicleError": "chronicle.errors",
    "ChronicleFileSystem": "chronicle.filesystem",
    "Committed": "chronicle.repository",
    "Conflict": "chronicle.errors",
    "Corrupt": "chronicle.errors",
    "IdempotencyConflict": "chronicle.errors",
    "InboxFull": "chronicle.errors",
    "InvalidInput": "chronicle.errors",
    "LeaseHeld": "chronicle.errors",
    "NotFound": "chronicle.errors",
    "OverQuota": "chronicle.errors",
    "Repository": "chronicle.repository",
    "StaleEpoch": "chronicle.errors",
    "Stats": "chronicle.repository",
    "StorageRefused": "chronicle.errors",
    "Unavailable": "chronicle.errors",
    "UnsupportedFormat": "chronicle.errors",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
