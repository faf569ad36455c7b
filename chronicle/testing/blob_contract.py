"""Promises of every `chronicle.blobs.port.BlobStore`, as tests. Subclass it for an implementation::

    class TestMyStore(BlobStoreContract):
        @pytest.fixture
        def opener(self, tmp_path):
            return lambda: MyStore(tmp_path)

        def damage(self, store, blob_id): ...

Needs pytest and hypothesis.
"""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.port import BlobStore
from chronicle.errors import Corrupt, InvalidInput, NotFound
from chronicle.ids import BlobId

__all__ = ["BlobStoreContract", "named"]

Opener = Callable[[], BlobStore]


def named(*blobs: bytes) -> dict[BlobId, bytes]:
    """Return blobs by their ids, as `BlobStore.put` takes them."""
    return {blob_id(data): data for data in blobs}


class BlobStoreContract(ABC):
    """Subclass it, give it an ``opener`` fixture and a way to damage a blob."""

    @pytest.fixture
    @abstractmethod
    def opener(self) -> Opener:
        """Return what opens the store under test; each call opens the same one again, as another process would."""

    @abstractmethod
    def damage(self, store: BlobStore, identifier: BlobId) -> None:
        """Change a stored byte of a blob behind the store's back."""

    @pytest.fixture
    def store(self, opener: Opener) -> Iterator[BlobStore]:
        """The store, closed at the end."""
        with closing(opener()) as opened:
            yield opened

    def test_what_is_put_is_got(self, store: BlobStore) -> None:
        blobs = named(b"", b"a", b"text " * 1000, random.Random(1).randbytes(300_000), b"\0" * 70_000)
        store.put(blobs)
        assert {identifier: store.get(identifier) for identifier in blobs} == blobs

    def test_many_are_got_at_once(self, store: BlobStore, opener: Opener) -> None:
        first = named(*(random.Random(number).randbytes(3_000) for number in range(40)), b"", b"text " * 2000)
        store.put(first)
        store.put(named(b"in another pack"))
        with closing(opener()) as other:
            for reader in (store, other):
                wanted = [*list(first)[::-2], blob_id(b"in another pack"), next(iter(first)), next(iter(first))]
                got = reader.get_many(wanted)
                assert got == {key: first.get(key, b"in another pack") for key in wanted}
                assert reader.get_many([]) == {}
                with pytest.raises(NotFound, match=blob_id(b"never")):
                    reader.get_many([*first, blob_id(b"never")])

    def test_another_opening_sees_it(self, store: BlobStore, opener: Opener) -> None:
        with closing(opener()) as other:
            assert other.missing(named(b"new")) == set(named(b"new"))
            store.put(named(b"new"))
            assert other.get(blob_id(b"new")) == b"new"
            assert other.missing(named(b"new", b"other")) == set(named(b"other"))
            assert set(other.blob_ids()) == set(named(b"new"))

    def test_no_such_blob(self, store: BlobStore) -> None:
        with pytest.raises(NotFound):
            store.get(blob_id(b"never put"))
        store.put(named(b"another"))
        with pytest.raises(NotFound):
            store.get(blob_id(b"never put"))

    def test_an_empty_store(self, store: BlobStore) -> None:
        assert list(store.blob_ids()) == []
        assert store.missing([]) == set()
        assert store.missing(named(b"x")) == set(named(b"x"))
        store.put({})
        assert list(store.blob_ids()) == []

    def test_sizes_are_those_before_compression(self, store: BlobStore) -> None:
        blobs = named(b"", b"x" * 100_000, b"short")
        store.put(blobs)
        wanted = {key: len(data) for key, data in blobs.items()}
        assert store.sizes([*blobs, *named(b"never put")]) == wanted
        assert store.sizes([]) == {}

    def test_a_wrong_id_is_refused_and_nothing_of_the_put_is_there(self, store: BlobStore) -> None:
        with pytest.raises(InvalidInput, match=blob_id(b"promised")):
            store.put({**named(b"honest"), blob_id(b"promised"): b"given"})
        assert list(store.blob_ids()) == []
        with pytest.raises(NotFound):
            store.get(blob_id(b"honest"))

    def test_something_that_is_no_id_is_refused(self, store: BlobStore) -> None:
        with pytest.raises((InvalidInput, NotFound)):
            store.get(BlobId("not an id"))

    def test_putting_again_changes_nothing(self, store: BlobStore, opener: Opener) -> None:
        store.put(named(b"a", b"b"))
        store.put(named(b"b", b"c"))
        store.put(named(b"a", b"b", b"c"))
        assert sorted(store.blob_ids()) == sorted(named(b"a", b"b", b"c"))
        with closing(opener()) as other:
            other.put(named(b"c", b"d"))
            assert sorted(other.blob_ids()) == sorted(named(b"a", b"b", b"c", b"d"))

    def test_damage_is_noticed_and_named(self, store: BlobStore, opener: Opener) -> None:
        blobs = named(random.Random(2).randbytes(5_000), b"compressible " * 500, b"small")
        store.put(blobs)
        for identifier in blobs:
            self.damage(store, identifier)
            with closing(opener()) as reopened:
                with pytest.raises(Corrupt, match=identifier):
                    reopened.get(identifier)
                with pytest.raises(Corrupt, match=identifier):
                    reopened.get_many([identifier])

    def test_many_puts(self, store: BlobStore, opener: Opener) -> None:
        blobs = [named(*(f"{turn}/{part}".encode() * 20 for part in range(3))) for turn in range(150)]
        for part in blobs:
            store.put(part)
        with closing(opener()) as other:
            for part in blobs:
                assert not other.missing(part)
                assert {identifier: other.get(identifier) for identifier in part} == part
            assert sorted(other.blob_ids()) == sorted(identifier for part in blobs for identifier in part)

    def test_threads_share_a_store(self, store: BlobStore, opener: Opener) -> None:
        failures: list[BaseException] = []

        def work(number: int, mine: BlobStore) -> None:
            try:
                for turn in range(20):
                    own, common = f"{number} {turn}".encode() * 50, f"common {turn}".encode() * 50
                    mine.put(named(own, common))
                    assert mine.get(blob_id(own)) == own
                    assert mine.get(blob_id(common)) == common
            except BaseException as error:  # noqa: BLE001 - shown by the assertion below
                failures.append(error)

        with ExitStack() as stack:
            stores = [store, store, stack.enter_context(closing(opener())), stack.enter_context(closing(opener()))]
            threads = [threading.Thread(target=work, args=(number, mine)) for number, mine in enumerate(stores)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        assert len(set(store.blob_ids())) == 4 * 20 + 20

    def test_a_buffer_reads_what_is_pending_and_puts_once(self, store: BlobStore) -> None:
        store.put(named(b"stored"))
        buffer = BlobBuffer(store)
        pending = buffer.add(b"pending")
        assert buffer.add(b"pending") == pending
        assert buffer.get(pending) == b"pending"
        assert buffer.get(blob_id(b"stored")) == b"stored"
        assert store.missing([pending]) == {pending}
        buffer.flush()
        assert store.get(pending) == b"pending"
        assert buffer.get(pending) == b"pending"
        buffer.flush()
        assert sorted(store.blob_ids()) == sorted(named(b"stored", b"pending"))

    def test_a_buffer_puts_early_rather_than_grow(self, store: BlobStore) -> None:
        buffer = BlobBuffer(store, spill_bytes=10_000)
        added = [buffer.add(bytes([number]) * 3_000) for number in range(10)]
        assert buffer.pending_bytes <= 10_000
        assert store.missing(added[:4]) == set()
        buffer.flush()
        assert store.missing(added) == set()
