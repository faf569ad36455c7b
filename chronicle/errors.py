"""The errors of Chronicle, drawn::

    ChronicleError
    ├── NotFound                    no such session, branch, event, message, blob, path, iteration
    │   ├── BlobMissing             a store of blobs does not have one
    │   ├── StoreNotFound           no store there, or one without a workspace
    │   ├── StoreRemoved            the directory of a mounted store is gone
    │   ├── NotMounted              a path is in no mounted workspace
    │   └── NoCommit                the workspace has no commit at that moment
    ├── InvalidInput                the caller's value cannot be used; says which and how to correct it
    ├── Conflict                    lost a compare-and-set; read again and retry
    │   ├── BranchVersionConflict   another append came first; carries the branch's head
    │   ├── BranchInUse             forks read from it; names them
    │   ├── IdempotencyConflict     the key was used before with another body
    │   ├── LeaseHeld               another holder's lease has not run out
    │   ├── MountInUse              programs use a mount, or something is mounted below it
    │   ├── MountpointTaken         something is mounted there already
    │   ├── StoreInUse              a store has a mount, or another process uses it
    │   └── StoreShared             other nodes may hold what no commit has
    ├── StaleEpoch                  a newer epoch holds the lease: this holder must stop, not retry
    ├── InboxFull                   too many messages are pending; try again later
    ├── OverQuota                   a workspace holds more than it may; remove something or raise the quota
    ├── Corrupt                     stored bytes are not what they were when written
    │   └── StoreDamaged            a store misses a blob that a commit needs, or cannot read a commit
    ├── UnsupportedFormat           written by a newer version; upgrade the code
    │   └── UnusableFormat          no upgrade of the code reads it
    │       └── OlderFormat         an upgrade of what is stored makes it readable
    └── Unavailable                 the store or mount could not be reached; the outcome may be unknown
        ├── MountUnreachable        the process that serves a mount does not answer
        ├── OlderVersionRuns        a process of an older version uses what this one has to migrate first
        └── StorageRefused          the operating system refused: disk full, I/O error, permissions

A caller may retry ``Conflict`` after reading again, and ``Unavailable`` after looking up the outcome of its write; it
must not retry the others unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.error_pickling import Portable

if TYPE_CHECKING:
    from chronicle.ids import BranchId, EventId
    from chronicle.workspace.port import TreeRef

__all__ = [
    "BlobMissing",
    "BranchInUse",
    "BranchVersionConflict",
    "ChronicleError",
    "Conflict",
    "Corrupt",
    "IdempotencyConflict",
    "InboxFull",
    "InvalidInput",
    "LeaseHeld",
    "MountInUse",
    "MountUnreachable",
    "MountpointTaken",
    "NoCommit",
    "NotFound",
    "NotMounted",
    "OlderFormat",
    "OlderVersionRuns",
    "OverQuota",
    "StaleEpoch",
    "StorageRefused",
    "StoreDamaged",
    "StoreInUse",
    "StoreNotFound",
    "StoreRemoved",
    "StoreShared",
    "Unavailable",
    "UnsupportedFormat",
    "UnusableFormat",
]


class ChronicleError(Portable):
    """Root of all errors that Chronicle raises on purpose."""


class _OfMount(ChronicleError):
    """An error of a mount.

    Attributes:
        mountpoint: where it is.
    """

    def __init__(self, message: str, mountpoint: str | None = None) -> None:
        super().__init__(message)
        self.mountpoint = mountpoint


class NotFound(ChronicleError):
    """The requested thing does not exist."""


class BlobMissing(NotFound):
    """A store of blobs does not have one. Where something stored refers to it, the store is damaged."""


class StoreNotFound(NotFound):
    """There is no store, or no workspace was ever mounted from it."""


class StoreRemoved(_OfMount, NotFound):
    """The directory of the store of a mounted workspace was removed or renamed."""


class NotMounted(NotFound):
    """A path is in no mounted workspace, so it names no store."""


class NoCommit(NotFound):
    """A workspace has no commit at a moment: it is before its first one."""


class InvalidInput(ChronicleError):
    """A value that cannot be used. The message says which, and how to mend it."""


class WrongType(InvalidInput, TypeError):
    """A value of a type that cannot be used."""


class Conflict(ChronicleError):
    """Another writer was first. Reading again and retrying is safe."""


class BranchVersionConflict(Conflict):
    """An append named a head that is no longer the branch's head.

    Attributes:
        branch_id: the branch.
        version: its present length.
        head_event_id: its present last event; ``None`` for an empty branch.
    """

    def __init__(self, branch_id: BranchId, version: int, head_event_id: EventId | None) -> None:
        super().__init__(
            f"branch {branch_id} is at version {version} (head {head_event_id}), not where the append expected it"
        )
        self.branch_id = branch_id
        self.version = version
        self.head_event_id = head_event_id


class BranchInUse(Conflict):
    """A branch cannot be deleted, because existing forks read their history from it.

    Attributes:
        branch_id: the branch.
        forks: the branches that continue it.
    """

    def __init__(self, branch_id: BranchId, forks: tuple[BranchId, ...]) -> None:
        super().__init__(f"branch {branch_id} is read by its forks {', '.join(forks)}; delete or detach them first")
        self.branch_id = branch_id
        self.forks = forks


class IdempotencyConflict(Conflict):
    """An idempotency key was reused with another body.

    Attributes:
        key: the idempotency key.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"idempotency key {key!r} was used before with another body; use a new key for a new message")
        self.key = key


class LeaseHeld(Conflict):
    """Another holder's lease has not run out.

    Attributes:
        holder: its holder.
        epoch: its epoch.
        expires_ms: when it runs out, epoch milliseconds.
    """

    def __init__(self, holder: str, epoch: int, expires_ms: int) -> None:
        super().__init__(f"{holder} holds the lease (epoch {epoch}) until {expires_ms}")
        self.holder = holder
        self.epoch = epoch
        self.expires_ms = expires_ms


class MountInUse(_OfMount, Conflict):
    """A workspace cannot be unmounted without force: programs use it, or something is mounted below it."""


class MountpointTaken(_OfMount, Conflict):
    """Something is mounted at a path already."""


class StoreInUse(Conflict):
    """A store has a mounted workspace, or another process uses it."""


class StoreShared(Conflict):
    """Other nodes share a store, and their uncommitted changes are unknown here."""


class StaleEpoch(ChronicleError):
    """A write under an expired epoch. Its holder was replaced and must stop.

    Attributes:
        epoch: the epoch of the refused write.
        current: the epoch in force.
    """

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(f"epoch {epoch} is over: epoch {current} holds the lease")
        self.epoch = epoch
        self.current = current


class InboxFull(ChronicleError):
    """An inbox holds as many waiting messages as it may.

    Attributes:
        limit: that number.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} messages wait in this inbox already; send again when some are handled")
        self.limit = limit


class OverQuota(ChronicleError):
    """A workspace holds more than its quota allows, so what it holds is not to be committed.

    Attributes:
        kept: what it holds, durable in the blob store all the same, so that nothing is lost.
    """

    def __init__(self, reason: str, kept: TreeRef) -> None:
        super().__init__(f"the workspace is over its quota: {reason}; remove something, or raise the quota")
        self.kept = kept


class Corrupt(ChronicleError):
    """Stored bytes are not what they were when written. The message says where.

    Attributes:
        journal: the file of a damaged journal, parts of which a verification may still read; ``None`` for other bytes.
    """

    def __init__(self, message: str, journal: str | None = None) -> None:
        super().__init__(message)
        self.journal = journal


class StoreDamaged(Corrupt):
    """A store misses a blob that a commit needs, or has a commit that cannot be read."""


class UnsupportedFormat(ChronicleError):
    """Written in a newer format than this code reads: upgrade the code. The message says which."""


class UnusableFormat(UnsupportedFormat):
    """A format that an upgrade of the code does not help with: an older one, or a file system's."""


class OlderFormat(UnusableFormat):
    """An older format, which this code migrates when what is stored is opened to write.

    Args:
        message: which.
        found: the format.
        newer: the format that it is migrated to.
        is_additive: whether code of the older format works with the newer one.
    """

    def __init__(self, message: str, found: int, newer: int, *, is_additive: bool = False) -> None:
        super().__init__(message)
        self.found = found
        self.newer = newer
        self.is_additive = is_additive


class Unavailable(ChronicleError):
    """A store or mount could not be reached or did not answer. A write may or may not have happened."""


class MountUnreachable(_OfMount, Unavailable):
    """The process that serves a mount does not answer."""


class OlderVersionRuns(Unavailable):
    """A process of an older version uses stored data that this version has to migrate first. Nothing was changed."""


class StorageRefused(Unavailable):
    """The operating system refused to read or write: the disk is full or fails, or permissions are lacking."""
