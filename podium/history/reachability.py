"""The blobs that a home's journal and layers reach, for :func:`chronicle.blobs.gc.collector.collect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.canonical import decode
from chronicle.journal.payloads import payload_bytes
from chronicle.workspace.history.commit_reachability import CommitReach
from podium.agent_record import trees_of
from podium.artifacts.artifacts import contents_of
from podium.code.deploys import kept_bundles
from podium.code.manifest import read_manifest
from podium.events import MESSAGE_ANSWERED, MODEL_CALLED
from podium.history.step_record import roots_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event
    from chronicle.workspace.port import TreeRef

__all__ = ["digest_of_roots", "reachable_blobs"]

_WITHOUT_TREES: Final = frozenset({MESSAGE_ANSWERED, MODEL_CALLED})
"""Events whose payloads, which may be large and many, need not be read: they name no trees."""


def reachable_blobs(store: JournalStore, blobs: BlobReader, layers: Iterable[TreeRef]) -> set[BlobId]:
    """Return the ids of all reachable blobs.

    They are payloads out of line, the contents of artifacts, the blobs of objects beside the events, and the blobs of
    the trees of all turns of all branches, including the trees of failed attempts and the whole history of every path;
    the trees, results and artifacts of the steps of messages that are not settled; and the bundles of code that are
    kept.

    Args:
        layers: the base trees of the layers of all nodes.

    Raises:
        NotFound, Corrupt: a reachable blob is damaged, so that reachability is unknown.
        Unavailable: a store could not be reached.
    """
    reach = CommitReach(blobs)
    for ref in layers:  # before the journal: the tree that a layer has sealed may be committed meanwhile
        reach.add(ref)
    for body in _steps(store):  # before the events: the trees of a turn's last step and of its commit are the same
        trees, parts, contents = roots_of(body)
        for tree in trees:
            reach.add(tree)
        for part in parts:
            reach.add_blob(part)
        for content in contents:
            reach.add_content(content)
    for each in store.all_objects():
        for blob in (each.body_ref, each.content):
            if blob is not None:
                reach.add_blob(blob)
    for bundle in kept_bundles(store):
        reach.add_blob(bundle)
        for blob in read_manifest(blobs, bundle).blobs:
            reach.add_blob(blob)
    for event in _events(store):
        _add(reach, event, blobs)
    return reach.ids()


def digest_of_roots(store: JournalStore, layers: Iterable[TreeRef]) -> str:
    """Return a digest of everything that determines the reachable blobs: while it is the same, so are they.

    It reads events and no blobs, so it costs little against `reachable_blobs`.

    Args:
        layers: the base trees of the layers of all nodes.

    Raises:
        Unavailable: the journal could not be reached.
    """
    digest = blake3()
    for ref in sorted({f"{ref.tree_id} {ref.oplog_id}\n" for ref in layers}):
        digest.update(ref.encode())
    for body in _steps(store):
        digest.update(b"step " + blake3(body).digest())
    for each in store.all_objects():
        digest.update(f"object {each.body_ref} {each.content}\n".encode())
    for bundle in kept_bundles(store):
        digest.update(f"bundle {bundle}\n".encode())
    for event in _events(store):
        digest.update(f"{event.hash} {event.erased}\n".encode())
    return digest.hexdigest()


def _steps(store: JournalStore) -> Iterator[bytes]:
    """Yield the records of the steps of all messages that are not settled."""
    for session in store.sessions():
        for step in store.steps_of_session(session.session_id):
            yield step.body


def _events(store: JournalStore) -> Iterator[Event]:
    """Yield the events of all branches, each once."""
    for session in store.sessions():
        for branch in store.branches(session.session_id):
            yield from store.events(branch.branch_id, after_seq=branch.parent_seq)


def _add(reach: CommitReach, event: Event, blobs: BlobReader) -> None:
    if event.erased:
        return
    if event.payload_ref is not None:
        reach.add_blob(event.payload_ref)
    if "." not in event.type or event.type in _WITHOUT_TREES:
        return  # public events name no trees either
    payload = decode(payload_bytes(event, blobs))
    for tree in trees_of(payload) if isinstance(payload, dict) else ():
        reach.add(tree)
    for content in contents_of(event, payload):
        reach.add_content(content)
