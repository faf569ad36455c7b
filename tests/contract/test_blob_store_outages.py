"""A store on a medium that fails: requests are repeated, an outage is said, and over when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from chronicle.blobs import blob_id
from chronicle.blobs.media.fsspec_objects import Patience, RemoteObjects
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import InvalidInput, NotFound, Unavailable
from chronicle.settings import read_settings
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
    monkeypatch.setattr("chronicle.blobs.media.fsspec_objects._BACKOFF_S", 0)
    monkeypatch.setenv("CHRONICLE_CACHE_BYTES", "0")
    monkeypatch.setenv("CHRONICLE_STORE_PATIENCE_S", "0")  # five attempts
    FlakyFileSystem.failures = 0
    yield f"flaky://{uuid4().hex}"
    FlakyFileSystem.store.clear()


def test_a_few_failures_go_unnoticed(url: str) -> None:
    store = PackBlobStore(url)
    store.put(named(b"a"))
    actions: list[Callable[[], object]] = [
        lambda: store.put(named(b"b")),
        lambda: PackBlobStore(url).get(blob_id(b"b")),
        lambda: store.missing(named(b"c")),
    ]
    for action in actions:
        FlakyFileSystem.failures = 4
        action()
        assert FlakyFileSystem.failures == 0


def test_an_outage_is_said_and_nothing_of_the_put_is_there(url: str) -> None:
    store = PackBlobStore(url, cache_bytes=0)
    store.put(named(b"before"))
    FlakyFileSystem.failures = -1
    with pytest.raises(Unavailable, match="connection reset"):
        store.put(named(b"during"))
    with pytest.raises(Unavailable, match="connection reset"):
        store.get(blob_id(b"before"))
    with pytest.raises(Unavailable):
        PackBlobStore(url).get(blob_id(b"before"))
    FlakyFileSystem.failures = 0
    assert store.missing(named(b"before", b"during")) == set(named(b"during"))
    assert store.get(blob_id(b"before")) == b"before"
    store.put(named(b"during"))
    assert PackBlobStore(url).get(blob_id(b"during")) == b"during"


def test_what_is_not_there_is_not_asked_for_again(url: str) -> None:
    store = PackBlobStore(url)
    store.put(named(b"a"))
    before = FlakyFileSystem.requests
    with pytest.raises(NotFound):
        store.get(blob_id(b"never"))
    assert FlakyFileSystem.requests - before <= 4, "its name, the shared index, twice, and a listing"


def test_a_put_costs_one_request(url: str) -> None:
    store = PackBlobStore(url)
    store.put(named(b"a"))
    before = FlakyFileSystem.requests
    for number in range(10):
        store.put(named(b"%d" % number, b"a"))
    store.put(named(b"a", b"5"))
    assert FlakyFileSystem.requests - before == 10


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.now_s += seconds


class AwayFor(MemoryFileSystem):  # type: ignore[misc]
    """Memory that refuses connections until a moment of a clock."""

    protocol = "awayfor"
    cachable = False
    store: dict[str, Any] = {}
    pseudo_dirs = [""]

    def __init__(self, clock: Clock, until_s: float) -> None:
        super().__init__()
        self.clock = clock
        self.until_s = until_s

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> Any:
        if self.clock.now_s < self.until_s:
            raise ConnectionRefusedError("connection refused")
        return super().pipe_file(path, value, mode, **options)


def objects_away_for(clock: Clock, until_s: float) -> RemoteObjects:
    return RemoteObjects(AwayFor(clock, until_s), "/x", "shown", Patience(), clock.sleep, lambda: clock.now_s)


@pytest.mark.parametrize("given", ["soon", "-1", "inf", "nan", ""])
def test_a_patience_that_is_no_number_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="CHRONICLE_STORE_PATIENCE_S is .* give a number of seconds"):
        read_settings({"CHRONICLE_STORE_PATIENCE_S": given})


def test_patience_is_what_the_environment_says() -> None:
    assert read_settings({}).store_patience_s == Patience().repeat_s
    assert read_settings({"CHRONICLE_STORE_PATIENCE_S": "120.5"}).store_patience_s == 120.5
    assert not Patience(repeat_s=120).is_over(100, 119.0)


@pytest.mark.parametrize("outage_s", [12.0, 40.0])
def test_a_write_outlasts_an_outage(outage_s: float) -> None:
    clock = Clock()
    objects_away_for(clock, outage_s).write("here", [b"x"])
    assert outage_s <= clock.now_s < outage_s + 5.0
    assert max(clock.pauses_s) <= 3.0


def test_an_outage_of_a_minute_is_given_up() -> None:
    clock = Clock()
    with pytest.raises(Unavailable, match=r"\d+ attempts in (4[6-9]|50) s, .*connection refused"):
        objects_away_for(clock, 60.0).write("here", [b"x"])
    assert clock.now_s <= Patience().max_s(0)
