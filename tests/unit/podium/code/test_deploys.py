"""The deploys of a home: the current one, the one before, what is kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.ident import blob_id
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import Conflict, NotFound
from chronicle.journal.memory import MemoryJournalStore
from coordinator.verification import Verifier
from podium.code import deploys as deploys_module
from podium.code.deploys import Deploy, current_deploy, deploys, kept_bundles, make_deploy, previous_deploy
from podium.code.packing import pack
from podium.history.reachability import digest_of_roots, reachable_blobs

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import BlobId
    from podium.code.manifest import Manifest

A, B, C = (blob_id(text) for text in (b"a", b"b", b"c"))


@pytest.fixture
def blobs(tmp_path: Path) -> PackBlobStore:
    """An empty one."""
    return PackBlobStore(f"file://{tmp_path / 'blobs'}")


def test_deploys_follow_each_other(blobs: PackBlobStore) -> None:
    store = MemoryJournalStore()
    assert (current_deploy(store), deploys(store), kept_bundles(store)) == (None, [], [])

    def made(bundle: BlobId | None) -> Deploy:
        return make_deploy(store, blobs, bundle, "cli uid 7", 5)

    assert made(A) == Deploy(1, A, "cli uid 7", 5) == current_deploy(store)
    assert made(A).number == 1, "it is current already"
    with pytest.raises(NotFound, match="there is no deploy before the current one"):
        previous_deploy(store)
    assert made(B).number == 2
    assert previous_deploy(store).bundle == A
    assert made(A) == Deploy(3, A, "cli uid 7", 5) == current_deploy(store), "back to the first"
    assert previous_deploy(store).bundle == B
    assert kept_bundles(store) == [B, A]
    assert made(C).number == 4
    assert kept_bundles(store) == [A, C]
    assert made(None).number == 5
    assert (current_deploy(store), previous_deploy(store).bundle, kept_bundles(store)) == (None, C, [C])
    assert [each.bundle for each in deploys(store)] == [A, B, A, C, None]


def test_of_two_at_one_moment_one_is_made(blobs: PackBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryJournalStore()
    make_deploy(store, blobs, A, "x", 5)
    before = deploys(store)
    make_deploy(store, blobs, B, "x", 5)
    monkeypatch.setattr(deploys_module, "deploys", lambda _: before)  # as the other one has read them
    with pytest.raises(Conflict, match="another deploy was made at the same moment"):
        make_deploy(store, blobs, C, "x", 5)
    monkeypatch.undo()
    assert [each.bundle for each in deploys(store)] == [A, B]


def test_a_bundle_that_was_chosen_by_a_deploy_that_is_over_is_not_made_current(blobs: PackBlobStore) -> None:
    store = MemoryJournalStore()
    for bundle in (A, B):
        make_deploy(store, blobs, bundle, "x", 5)
    before = previous_deploy(store)
    make_deploy(store, blobs, C, "x", 5)
    with pytest.raises(Conflict, match="another deploy was made at the same moment"):
        make_deploy(store, blobs, before.bundle, "x", 5, after=before.number + 1)
    assert [each.bundle for each in deploys(store)] == [A, B, C]


def test_the_current_and_the_previous_bundle_are_kept_and_verified(tmp_path: Path) -> None:
    store, url = MemoryJournalStore(), f"file://{tmp_path / 'blobs'}"
    blobs = PackBlobStore(url)
    file, digests = tmp_path / "agent.py", set[str]()
    made: list[Manifest] = []
    for number in range(3):
        file.write_text(f"number = {number}")
        made.append(pack(blobs, tmp_path, [file], []))
        make_deploy(store, blobs, made[-1].bundle, "x", number)
        digests.add(digest_of_roots(store, []))
    assert len(digests) == 3
    kept = {blob for each in made[1:] for blob in (each.bundle, *each.blobs)}
    assert reachable_blobs(store, blobs, []) == kept
    collect(url, lambda: reachable_blobs(store, blobs, []), GcRules(alone=True))
    blobs.close()
    blobs = PackBlobStore(url)
    assert set(blobs.blob_ids()) == kept
    check = Verifier(store, blobs).check_objects()
    assert check is not None
    assert (check.problem, check.blobs) == (None, 4)
    blobs.close()
    empty = PackBlobStore(f"file://{tmp_path / 'empty'}")
    check = Verifier(store, empty).check_objects()
    assert check is not None
    assert check.problem is not None
    assert check.problem.startswith("deploy 000000002 of default: ")
    empty.close()
