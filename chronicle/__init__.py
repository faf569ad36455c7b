"""Chronicle, the durable record: a journal of events, a store of blobs, and versioned workspaces.

It knows nothing of agents, Ray or HTTP. What programs import is here: stores of workspaces, their file system, and the
errors. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from chronicle.errors import BlobMissing as BlobMissing
    from chronicle.errors import BranchInUse as BranchInUse
    from chronicle.errors import BranchVersionConflict as BranchVersionConflict
    from chronicle.errors import ChronicleError as ChronicleError
    from chronicle.errors import Conflict as Conflict
    from chronicle.errors import Corrupt as Corrupt
    from chronicle.errors import IdempotencyConflict as IdempotencyConflict
    from chronicle.errors import InboxFull as InboxFull
    from chronicle.errors import InvalidInput as InvalidInput
    from chronicle.errors import LeaseHeld as LeaseHeld
    from chronicle.errors import NotFound as NotFound
    from chronicle.errors import OverQuota as OverQuota
    from chronicle.errors import StaleEpoch as StaleEpoch
    from chronicle.errors import StorageRefused as StorageRefused
    from chronicle.errors import Unavailable as Unavailable
    from chronicle.errors import UnsupportedFormat as UnsupportedFormat
    from chronicle.filesystem import ChronicleFileSystem as ChronicleFileSystem
    from chronicle.repository import Check as Check
    from chronicle.repository import Committed as Committed
    from chronicle.repository import Repository as Repository
    from chronicle.repository import Stats as Stats

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
