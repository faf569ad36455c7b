"""Reads of a blob store that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import NotFound, Unavailable
from chronicle.fuse import deadlines
from chronicle.fuse.deadlines import TimedBlobStore
from chronicle.ids import BlobId

DATA = b"kept"
NAME = blob_id(DATA)
LONG_S = 60.0


class Hanging(MemoryBlobStore):
    """Answers reads when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.asked = 0

    def get(self, blob_id: BlobId) -> bytes:
        self.asked += 1
        assert self.answers.wait(LONG_S)
        return super().get(blob_id)

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        return {name: self.get(name) for name in blob_ids}


@pytest.fixture
def behind() -> Iterator[Hanging]:
    store = Hanging()
    store.put({NAME: DATA})
    yield store
    store.answers.set()


def test_what_answers_is_passed_on(behind: Hanging) -> None:
    beats: list[None] = []
    store = TimedBlobStore(behind, LONG_S, lambda: beats.append(None))
    behind.answers.set()
    assert store.get(NAME) == DATA
    assert store.get_many([NAME]) == {NAME: DATA}
    with pytest.raises(NotFound):
        store.get(blob_id(b"never"))
    assert len(beats) == 3
    assert store.missing([NAME]) == set()
    assert list(store.blob_ids()) == [NAME]
    store.close()


def test_a_read_that_hangs_is_given_up_and_so_are_those_that_come_meanwhile(behind: Hanging) -> None:
    store = TimedBlobStore(behind, 0.5, lambda: None)
    with pytest.raises(Unavailable, match=r"within 0\.5 s"):
        store.get(NAME)
    for _ in range(2 * deadlines._THREADS):  # more than there are threads: none waits for one to be free
        with pytest.raises(Unavailable, match=r"within 0\.025 s"):
            store.get_many([NAME])
    assert behind.asked <= deadlines._THREADS
    store.close()


def test_when_it_answers_again_all_is_well(behind: Hanging) -> None:
    store = TimedBlobStore(behind, 0.1, lambda: None)
    with pytest.raises(Unavailable):
        store.get(NAME)
    behind.answers.set()
    while True:  # until the helper thread has noticed
        try:
            assert store.get(NAME) == DATA
        except Unavailable:
            continue
        break
    store.close()


def test_an_error_that_looks_like_a_deadline_is_passed_on(behind: Hanging) -> None:
    class Late(Hanging):
        def get(self, blob_id: BlobId) -> bytes:
            raise TimeoutError("its own")

    store = TimedBlobStore(Late(), LONG_S, lambda: None)
    with pytest.raises(TimeoutError, match="its own"):
        store.get(NAME)
    store.close()
