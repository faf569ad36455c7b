"""A medium that lacks what a blob store relies on is refused before anything is stored in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from chronicle.blobs.media.fsspec_objects import Patience, RemoteObjects, open_remote
from chronicle.blobs.media.medium_check import check_medium
from chronicle.clock import ManualClock, SystemClock
from chronicle.errors import InvalidInput, Unavailable
from coordinator.home import Home
from tests.s3_server import BUCKET, S3Server, free_port, point_at


class _Forgetful(MemoryFileSystem):  # type: ignore[misc]
    """Replaces what was to be created only if it is absent."""

    protocol = "forgetful"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> Any:
        return super().pipe_file(path, value, "overwrite", **options)


class _Late(MemoryFileSystem):  # type: ignore[misc]
    """Returns what was stored some time ago."""

    protocol = "late"
    store: dict[str, Any] = {}
    pseudo_dirs = [""]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        raise FileNotFoundError(path)


def _objects(filesystem: MemoryFileSystem) -> RemoteObjects:
    return RemoteObjects(filesystem, f"/{uuid4().hex}", "the medium", Patience(1, 0.0, repeat_s=0.0))


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteObjects:
    point_at(monkeypatch, s3.endpoint, tmp_path / "cache")
    return open_remote(f"s3://{BUCKET}/{uuid4().hex}")


def test_a_fit_medium_passes_and_keeps_nothing(bucket: RemoteObjects) -> None:
    for objects in (bucket, _objects(MemoryFileSystem())):
        check_medium(objects, SystemClock())
        assert not objects.names("check")


def test_conditional_creation_is_needed() -> None:
    objects = _objects(_Forgetful())
    with pytest.raises(InvalidInput, match=r"^the medium replaces an object that was to be created only if it is abse"):
        check_medium(objects, SystemClock())
    assert not objects.names("check")


def test_what_was_stored_must_be_there() -> None:
    with pytest.raises(InvalidInput, match="^the medium does not return an object that was just stored in it"):
        check_medium(_objects(_Late()), SystemClock())


@pytest.mark.parametrize(("minutes", "side"), [(-20, "behind"), (20, "ahead of")])
def test_the_clocks_must_agree(bucket: RemoteObjects, minutes: int, side: str) -> None:
    clock = ManualClock(SystemClock().now_ms() + minutes * 60_000)
    with pytest.raises(InvalidInput, match=f"^the clock of this machine is 20 minutes {side} that of s3://"):
        check_medium(bucket, clock)
    clock = ManualClock(SystemClock().now_ms() + minutes * 6_000)
    check_medium(bucket, clock)


def test_no_home_is_made_on_an_unfit_medium(tmp_path: Path) -> None:
    fsspec.register_implementation("forgetful", _Forgetful, clobber=True)
    with pytest.raises(InvalidInput, match="conditional writes"):
        Home(tmp_path / "home").create("forgetful://bucket")
    assert not (tmp_path / "home" / "format").exists()
    assert not _Forgetful.store


def test_an_outage_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at(monkeypatch, f"http://127.0.0.1:{free_port()}", tmp_path / "cache")
    with pytest.raises(Unavailable, match="does not answer"):
        check_medium(open_remote(f"s3://{BUCKET}/away"), SystemClock())
