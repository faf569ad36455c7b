"""The blobs of objects beside the events are reached, verified, and freed once the objects are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.objects import ObjectName, StoredObject, new_object, object_body
from coordinator.verification import Verifier
from podium.history.reachability import digest_of_roots, reachable_blobs

if TYPE_CHECKING:
    from pathlib import Path

LARGE = {"text": "x" * 70_000}


def stored(store: MemoryJournalStore, blobs: PackBlobStore, name: str, content: bytes | None = None) -> StoredObject:
    """Store an object with a body out of line."""
    made = new_object(blobs, ObjectName("artifact", f"art_{name}", "acme"), 5, {**LARGE, "name": name}, content=content)
    return store.put_object(made)


def test_collections_keep_what_objects_have(tmp_path: Path) -> None:
    store, url = MemoryJournalStore(), f"file://{tmp_path / 'blobs'}"
    blobs = PackBlobStore(url)
    kept, dropped = stored(store, blobs, "kept", b"content"), stored(store, blobs, "dropped", b"content of dropped")
    assert kept.body is None
    assert kept.size_bytes + dropped.size_bytes == store.object_bytes("acme") > 140_000
    before = digest_of_roots(store, [])
    assert reachable_blobs(store, blobs, []) == {kept.body_ref, kept.content, dropped.body_ref, dropped.content}
    assert store.delete_object("artifact", dropped.object_id, "acme")
    assert digest_of_roots(store, []) != before
    collect(url, lambda: reachable_blobs(store, blobs, []), GcRules(alone=True))
    blobs.close()
    blobs = PackBlobStore(url)
    assert set(blobs.blob_ids()) == {kept.body_ref, kept.content}
    assert object_body(store.object("artifact", "art_kept", "acme"), blobs) == {**LARGE, "name": "kept"}
    blobs.close()


def test_objects_are_verified(tmp_path: Path) -> None:
    store, blobs = MemoryJournalStore(), PackBlobStore(f"file://{tmp_path / 'blobs'}")
    verifier = Verifier(store, blobs)
    assert verifier.check_objects() is None
    kept = stored(store, blobs, "kept", b"content")
    check = verifier.check_objects()
    assert check is not None
    assert (check.problem, check.blobs) == (None, 2)
    elsewhere = PackBlobStore(f"file://{tmp_path / 'empty'}")
    check = Verifier(store, elsewhere).check_objects()
    assert check is not None
    assert check.problem is not None
    assert check.problem.startswith("artifact art_kept of acme: ")
    assert kept.body_sha256 not in check.problem
    blobs.close()
    elsewhere.close()
