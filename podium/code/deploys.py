"""The deploys of a home: which bundle of code is current, which one was before, by whom and when.

Each deploy is an object of the journal that is never changed; the last one is current. Their numbers order them, and of
two that are made at one moment the journal takes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import Conflict, NotFound
from chronicle.ids import BlobId
from chronicle.journal.objects import ObjectName, new_object, object_body

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.journal.objects import StoredObject
    from chronicle.journal.port import JournalStore

__all__ = [
    "DEPLOY",
    "Deploy",
    "current_deploy",
    "deploy_of",
    "deploys",
    "kept_bundles",
    "make_deploy",
    "previous_deploy",
]

DEPLOY: Final = "deploy"
"""The kind of the objects."""
_AT_ONCE: Final = "another deploy was made at the same moment; podium deploys shows it, then try again"
_KEPT: Final = 2
"""The current deploy and the one before: the bundles of others may be freed."""


@dataclass(frozen=True, slots=True)
class Deploy:
    """A deploy."""

    number: int
    """From 1."""
    bundle: BlobId | None
    """``None``: no bundle is current from here on, and agents run the files of the service's machine."""
    by: str
    """As of `coordinator.access.audit`."""
    made_ms: int

    def to_wire(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"number": self.number, "bundle": self.bundle, "by": self.by, "made_ms": self.made_ms}


def deploys(store: JournalStore) -> list[Deploy]:
    """Return all deploys, oldest first.

    Raises:
        Corrupt: a record of one is damaged.
        Unavailable: the journal could not be reached.
    """
    return [deploy_of(each) for each in store.objects(DEPLOY)]


def current_deploy(store: JournalStore) -> Deploy | None:
    """Return the last deploy if it has a bundle; raises as `deploys`."""
    found = deploys(store)[-1:]
    return found[0] if found and found[0].bundle is not None else None


def previous_deploy(store: JournalStore) -> Deploy:
    """Return the last deploy with another bundle than the current one, whose bundle is kept.

    Raises:
        NotFound: there is none.
        Corrupt, Unavailable: as `deploys`.
    """
    found = deploys(store)[-_KEPT:]
    if len(found) < _KEPT or (before := found[0]).bundle is None:
        raise NotFound("there is no deploy before the current one; podium deploys lists them")
    return before


def make_deploy(
    store: JournalStore, blobs: BlobStore, bundle: BlobId | None, by: str, now_ms: int, *, after: int | None = None
) -> Deploy:
    """Make a bundle the current one, durably; the current deploy stays if it has that bundle.

    Args:
        bundle: it is in the blob store; ``None`` for no bundle.
        after: the number of the current deploy, if the bundle was chosen by it.

    Raises:
        Conflict: another deploy was made at the same moment.
        Corrupt, Unavailable: as `deploys`.
    """
    last = next(iter(deploys(store)[-1:]), Deploy(0, None, by, now_ms))
    if after is not None and last.number != after:
        raise Conflict(_AT_ONCE)
    if last.bundle == bundle:
        return last
    made = Deploy(last.number + 1, bundle, by, now_ms)
    body: JsonObject = {"bundle": made.bundle, "by": made.by}
    try:
        store.put_object(new_object(blobs, ObjectName(DEPLOY, f"{made.number:09d}"), now_ms, body))
    except Conflict:
        raise Conflict(_AT_ONCE) from None
    return made


def kept_bundles(store: JournalStore) -> list[BlobId]:
    """Return the bundles that are kept: of the current deploy and the one before; raises as `deploys`."""
    return [each.bundle for each in deploys(store)[-_KEPT:] if each.bundle is not None]


def deploy_of(found: StoredObject) -> Deploy:
    """Return the deploy of an object.

    Raises:
        Corrupt: it is damaged.
    """
    body: dict[str, Any] = object_body(found)
    bundle = body["bundle"]
    return Deploy(int(found.object_id), BlobId(bundle) if bundle is not None else None, body["by"], found.created_ms)
