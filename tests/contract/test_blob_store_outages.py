"""A store on a medium that fails: requests are repeated, an outage is said, and over when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from chronicle.blobs import blob_id
from chronicle.blobs.fsspec_store import FsspecBlobStore
from chronicle.errors import NotFound, Unavailable
from chronicle.testing.blob_contract import named


class FlakyFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Memory that answers only when it likes."""

    protocol = "flaky"
    cachable = False
    store: dict[str, Any] = {}
    pseudo_dirs = [""]
    failures = 0
    """So many requests from now on fail; below 0, all."""
    requests = 0

    @classmethod
    def _fail(cls) -> None:
        cls.requests += 1
        if cls.failures:
            cls.failures -= 1
            raise ConnectionResetError("connection reset by peer")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> Any:
        self._fail()
        return super().pipe_file(path, value, mode, **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        self._fail()
        return super().cat_file(path, start, end, **options)

    def find(self, path: str, *arguments: Any, **options: Any) -> Any:
        self._fail()
        return super().find(path, *arguments, **options)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)
    monkeypatch.setattr("chronicle.blobs.fsspec_objects._BACKOFF_S", 0)
    monkeypatch.setenv("CHRONICLE_CACHE_BYTES", "0")
    FlakyFileSystem.failures = 0
    yield f"flaky://{uuid4().hex}"
    FlakyFileSystem.store.clear()


def test_a_few_failures_go_unnoticed(url: str) -> None:
    store = FsspecBlobStore(url)
    store.put(named(b"a"))
    actions: list[Callable[[], object]] = [
        lambda: store.put(named(b"b")),
        lambda: FsspecBlobStore(url).get(blob_id(b"b")),
        lambda: store.missing(named(b"c")),
    ]
    for action in actions:
        FlakyFileSystem.failures = 4
        action()
        assert FlakyFileSystem.failures == 0


def test_an_outage_is_said_and_nothing_of_the_put_is_there(url: str) -> None:
    store = FsspecBlobStore(url, cache_bytes=0)
    store.put(named(b"before"))
    FlakyFileSystem.failures = -1
    with pytest.raises(Unavailable, match="connection reset"):
        store.put(named(b"during"))
    with pytest.raises(Unavailable, match="connection reset"):
        store.get(blob_id(b"before"))
    with pytest.raises(Unavailable):
        FsspecBlobStore(url)
    FlakyFileSystem.failures = 0
    assert store.missing(named(b"before", b"during")) == set(named(b"during"))
    assert store.get(blob_id(b"before")) == b"before"
    store.put(named(b"during"))
    assert FsspecBlobStore(url).get(blob_id(b"during")) == b"during"


def test_what_is_not_there_is_not_asked_for_again(url: str) -> None:
    store = FsspecBlobStore(url)
    store.put(named(b"a"))
    before = FlakyFileSystem.requests
    with pytest.raises(NotFound):
        store.get(blob_id(b"never"))
    assert FlakyFileSystem.requests - before <= 3


def test_a_put_costs_one_request(url: str) -> None:
    store = FsspecBlobStore(url)
    store.put(named(b"a"))
    before = FlakyFileSystem.requests
    for number in range(10):
        store.put(named(b"%d" % number, b"a"))
    store.put(named(b"a", b"5"))
    assert FlakyFileSystem.requests - before == 10
