"""A store on a local disk after a crash at each system call of its puts.

The process dies before a call, in the middle of a write, or after a call; from then on nothing it does has an effect.
With a power loss, what was not synced is lost as well: file contents written since their last fsync (cut off, or there
in length but zero), and names made, renamed or removed since their directory's last fsync.

Afterwards every acknowledged blob is there, a put that was not acknowledged is there as a whole or not at all, what is
stored can be read, and the store takes new blobs.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.media.objects import LocalObjects
from chronicle.blobs.packs.catalog import PACK_FOLDER, read_pack_index
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.ids import BlobId
from chronicle.testing.blob_contract import named

PUTS = [named(*(random.Random(turn * 10 + part).randbytes(300) for part in range(3))) for turn in range(4)]
FIRST = named(b"there before", b"and this")


class Crash(BaseException):
    """The process dies here. No code of ours catches it."""


class CrashingOs:
    """Replaces the calls by which the store writes; counts them, dies at one, remembers what is not durable."""

    CALLS = ("open", "write", "fsync", "rename", "mkdir", "unlink")

    def __init__(self, root: Path, die_at: int, how: str) -> None:
        self.root = root
        self.die_at = die_at
        self.how = how
        self.count = 0
        self.dead = False
        self.names: list[tuple[str, Path, Path]] = []
        """Changes of names that no fsync of their directory has made durable: what, path, other path."""
        self.unsynced: dict[int, int] = {}
        """Inode -> how many of its bytes are durable."""
        self.real = {call: getattr(os, call) for call in self.CALLS}

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            for call in self.CALLS:
                patched.setattr(os, call, self._wrapper(call))
            yield

    def _wrapper(self, call: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                raise Crash
            self.count += 1
            if self.count == self.die_at and self.how != "after":
                if call == "write" and self.how == "within":
                    self._do("write", args[0], bytes(args[1])[: len(args[1]) // 2])
                self.dead = True
                raise Crash
            try:
                return self._do(call, *args, **kwargs)
            finally:
                if self.count == self.die_at:
                    self.dead = True
                    raise Crash

        return wrapped

    def _do(self, call: str, *args: Any, **kwargs: Any) -> Any:
        if call == "open":
            path = Path(args[0])
            made = args[1] & os.O_CREAT and not path.exists()
            result = self.real["open"](*args, **kwargs)
            if made:
                self.names.append(("made", path, path))
            return result
        if call == "write":
            status = os.fstat(args[0])
            self.unsynced.setdefault(status.st_ino, status.st_size)
            return self.real["write"](*args)
        if call == "fsync":
            path = Path(f"/proc/self/fd/{args[0]}").readlink()
            self.unsynced.pop(os.fstat(args[0]).st_ino, None)
            self.names = [name for name in self.names if name[1].parent != path]
            return None  # the sync itself is not what is tested here, and costs much
        path = Path(args[0])
        if call == "unlink":
            return self.real["unlink"](*args, **kwargs)
        result = self.real[call](*args, **kwargs)
        if call == "rename":
            self.names.append(("renamed", Path(args[1]), path))
        else:
            self.names.append(("made", path, path))
        return result

    def lose_power(self, zeros: bool) -> None:
        """Take away what was not durable."""
        for path in list(self.root.rglob("*")):
            durable = self.unsynced.get(path.stat().st_ino)
            if durable is not None:
                size = path.stat().st_size
                os.truncate(path, durable)
                if zeros:
                    os.truncate(path, size)
        for what, path, other in reversed(self.names):
            if not path.exists():
                continue
            if what == "renamed" and other.parent.is_dir():
                path.rename(other)
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def puts(root: Path, acknowledged: list[BlobId]) -> None:
    store = PackBlobStore(f"file://{root}", cache_bytes=0)
    for blobs in PUTS:
        store.put(blobs)
        acknowledged.extend(blobs)


def count_calls(root: Path) -> int:
    counting = CrashingOs(root, -1, "before")
    with counting.installed():
        puts(root, [])
    return counting.count


def check(root: Path, acknowledged: list[BlobId]) -> None:
    objects = LocalObjects(root)
    for name in objects.names(PACK_FOLDER):
        assert read_pack_index(objects, Path(name).name).entries
    store = PackBlobStore(f"file://{root}", cache_bytes=0)
    present = set(store.blob_ids())
    assert present >= set(acknowledged)
    for blobs in PUTS:
        assert present >= set(blobs) or present.isdisjoint(blobs)
    everything = {**FIRST, **{key: data for blobs in PUTS for key, data in blobs.items()}}
    for key in present:
        assert store.get(key) == everything[key]
    store.put(named(b"afterwards"))
    for blobs in PUTS:
        store.put(blobs)
    again = PackBlobStore(f"file://{root}")
    assert again.get(blob_id(b"afterwards")) == b"afterwards"
    assert not again.missing(everything if FIRST.keys() <= present else {key for blobs in PUTS for key in blobs})


@pytest.mark.parametrize("how", ["before", "within", "after"])
@pytest.mark.parametrize("loss", ["process", "power", "power, zeros"])
@pytest.mark.parametrize("start", ["new store", "store in use", "log about to be folded"])
def test_a_crash_at_each_call(tmp_path: Path, how: str, loss: str, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if start == "log about to be folded":
        monkeypatch.setattr("chronicle.blobs.packs.local_catalog._LOG_BYTES", 500)

    def fresh(name: str) -> Path:
        root = tmp_path / name
        if start != "new store":
            PackBlobStore(f"file://{root}").put(FIRST)
        return root

    calls = count_calls(fresh("count"))
    assert calls > 15
    for die_at in range(1, calls + 1):
        root = fresh(str(die_at))
        acknowledged: list[BlobId] = [] if start == "new store" else list(FIRST)
        crashing = CrashingOs(root, die_at, how)
        with crashing.installed(), pytest.raises(Crash):
            puts(root, acknowledged)
        if loss != "process":
            crashing.lose_power(zeros=loss.endswith("zeros"))
        check(root, acknowledged)
        shutil.rmtree(root)
