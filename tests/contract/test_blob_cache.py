"""A node's cache: its bound, its damage, the processes that share it, and that each blob is fetched once."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chronicle.blobs import blob_id, ident
from chronicle.blobs import cache as cache_module
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.cache import BlobCache, cache_from
from chronicle.blobs.packs.bulk_reader import BulkReader
from chronicle.blobs.packs.catalog import pack_object
from chronicle.blobs.packs.pack_checker import PackChecker
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import Corrupt, InvalidInput, NotFound
from chronicle.settings import CACHE_BYTES, read_settings
from chronicle.testing.blob_contract import named
from chronicle.workspace.trees import nodes
from tests.faulty_proxy import FaultyProxy, running_proxy
from tests.s3_server import BUCKET, S3Server

BLOCK = 4096
LIMIT = 64 * BLOCK


def noise(number: int, size: int = BLOCK) -> bytes:
    return random.Random(number).randbytes(size)


def raw(data: bytes) -> bytes:
    return ident.to_raw(blob_id(data))


def accounted(cache: BlobCache) -> int:
    """Return how many bytes the cache says it takes."""
    return int.from_bytes((cache.directory / "used").read_bytes()[:8], "big")


def taken(directory: Path) -> int:
    """What is really on the disk, while nobody may take more or give back."""
    with (directory / "used").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        size = 0
        for path in [path for name in ("blobs", "parts", "tmp") for path in (directory / name).rglob("*")]:
            try:
                status = path.stat()
            except FileNotFoundError:  # it has got its name just now
                continue
            size += -(-status.st_size // BLOCK) * BLOCK if stat.S_ISREG(status.st_mode) else 0
        return size


def put(cache: BlobCache, *blobs: bytes) -> None:
    for data in blobs:
        cache.put(raw(data), data)


def let_the_clock_of_files_tick(path: Path) -> None:
    """Return when what is written to now is newer than before, by its times, too: they come in steps."""
    os.utime(path)
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:
        os.utime(path)


def test_what_is_put_is_got_by_another_process(tmp_path: Path) -> None:
    put(BlobCache(tmp_path, LIMIT), b"", b"x", noise(1))
    other = BlobCache(tmp_path, LIMIT)
    assert [other.get(raw(data)) for data in (b"", b"x", noise(1), noise(2))] == [b"", b"x", noise(1), None]
    other.put_part("pack", b"index")
    mine = tmp_path / "new" / "cache"
    put(BlobCache(mine, LIMIT), b"x")
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    assert BlobCache(tmp_path, LIMIT).get_part("pack") == b"index"
    assert other.get_part("other") is None


def test_it_stays_within_its_bound_and_the_oldest_read_goes_first(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, LIMIT)
    kept, others = noise(0), [noise(number, 3 * BLOCK - 5) for number in range(1, 60)]
    put(cache, kept)
    for data in others:
        put(cache, data)
        assert taken(tmp_path) <= accounted(cache) <= LIMIT
        assert cache.get(raw(kept)) == kept
        let_the_clock_of_files_tick(cache.directory / "used")
    there = [data for data in others if cache.get(raw(data)) is not None]
    assert there == others[-len(there) :]
    assert len(there) >= 15


def test_what_is_too_large_is_not_kept(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, LIMIT)
    put(cache, noise(1), noise(2, LIMIT // 4))
    assert cache.get(raw(noise(1))) is not None
    assert cache.get(raw(noise(2, LIMIT // 4))) is None


def test_what_is_taken_and_not_written_yet_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, other = BlobCache(tmp_path, LIMIT), BlobCache(tmp_path, LIMIT)
    take = BlobCache._take

    def take_slowly(*arguments: Any) -> Any:
        found = take(*arguments)
        if arguments[0] is cache:
            put(other, *(noise(number) for number in range(1, 80)))  # evicts
            assert taken(tmp_path) + BLOCK <= accounted(other)
        return found

    monkeypatch.setattr(BlobCache, "_take", take_slowly)
    put(cache, noise(0))
    assert cache.get(raw(noise(0))) == noise(0)
    assert taken(tmp_path) <= accounted(cache) <= LIMIT


def test_what_gets_its_name_while_an_eviction_counts_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = BlobCache(tmp_path, LIMIT)
    put(cache, *(noise(number) for number in range(64)))
    look = cache_module._files
    named_late: list[bytes] = []

    def look_and_wait(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
        yield from look(folder)
        if folder.parent == tmp_path and not named_late:  # after the first folder
            late = noise(1_000)
            named_late.append(late)
            path = cache._path("blobs", raw(late))
            path.parent.mkdir(exist_ok=True)
            written.rename(path)

    written = tmp_path / "tmp" / f"1.{'a' * 12}.{BLOCK}"
    written.write_bytes(noise(1_000))
    monkeypatch.setattr(cache_module, "_files", look_and_wait)
    put(cache, noise(64))
    assert named_late
    assert taken(tmp_path) <= accounted(cache)


@pytest.mark.parametrize("damage", ["cut", "emptied", "changed"])
def test_a_damaged_entry_is_dropped(tmp_path: Path, damage: str) -> None:
    cache = BlobCache(tmp_path, LIMIT)
    put(cache, noise(1))
    cache.put_part("pack", noise(2))
    for path in [path for name in ("blobs", "parts") for path in (tmp_path / name).rglob("*") if path.is_file()]:
        data = path.read_bytes()
        path.write_bytes({"cut": data[:-1], "emptied": b"", "changed": data[:9] + b"?" + data[10:]}[damage])
    assert cache.get(raw(noise(1))) is None
    assert cache.get_part("pack") is None
    assert taken(tmp_path) == 0
    put(cache, noise(1))
    assert cache.get(raw(noise(1))) == noise(1)


def test_all_of_it_may_be_removed_at_any_time(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    cache = BlobCache(directory, LIMIT)
    for path in ("blobs", "used", "tmp", ""):
        put(cache, noise(1))
        subprocess.run(["rm", "-r", directory / path], check=True)
        put(cache, noise(2))
        assert cache.get(raw(noise(2))) == noise(2)


def test_one_that_cannot_be_written_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = BlobCache(tmp_path / "file", LIMIT)
    put(cache, noise(1), noise(2))
    with cache.claim([raw(noise(1))]):
        assert cache.get(raw(noise(1))) is None
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1


def test_where_it_is_and_how_large(tmp_path: Path) -> None:
    assert cache_from(read_settings({"CHRONICLE_CACHE_BYTES": "0"}, tmp_path)) is None
    default = cache_from(read_settings({}, tmp_path))
    assert default is not None
    assert (default.directory, default._limit_bytes) == (tmp_path / ".cache" / "chronicle", CACHE_BYTES)
    elsewhere = cache_from(read_settings({"XDG_CACHE_HOME": "/x", "CHRONICLE_CACHE_BYTES": "77"}, tmp_path))
    assert elsewhere is not None
    assert (elsewhere.directory, elsewhere._limit_bytes) == (Path("/x/chronicle"), 77)
    named_one = cache_from(read_settings({"CHRONICLE_CACHE_DIR": "/y"}, tmp_path))
    assert named_one is not None
    assert named_one.directory == Path("/y")
    assert cache_from(read_settings({}, None)) is None
    with pytest.raises(InvalidInput, match="number of bytes"):
        cache_from(read_settings({"CHRONICLE_CACHE_BYTES": "lots"}, tmp_path))


FILLER = """
import random, sys
from pathlib import Path
from chronicle.blobs import blob_id, ident
from chronicle.blobs.cache import BlobCache

directory, limit, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
cache = BlobCache(directory, limit)
choose = random.Random(seed)
for number in range(count):
    if number % 10 == 0:
        print(number, flush=True)
    data = random.Random(choose.randrange(200)).randbytes(5_000)
    key = ident.to_raw(blob_id(data))
    found = cache.get(key)
    assert found in (None, data)
    if found is None:
        cache.put(key, data)
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def test_processes_share_it_and_are_killed(tmp_path: Path) -> None:
    processes = [start(FILLER, tmp_path, LIMIT, seed, 1_500) for seed in range(2)]
    try:
        for seed in range(2, 7):
            victim = start(FILLER, tmp_path, LIMIT, seed, 100_000)
            processes.append(victim)
            assert victim.stdout is not None
            for _ in range(random.Random(seed).randrange(1, 40)):
                assert victim.stdout.readline()
            victim.send_signal(signal.SIGKILL)
            victim.communicate(timeout=30)
            assert taken(tmp_path) <= LIMIT
        assert [process.wait(120) for process in processes[:2]] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=30)
    cache = BlobCache(tmp_path, LIMIT)
    before = accounted(cache)
    assert taken(tmp_path) <= before <= LIMIT
    for path in (tmp_path / "tmp").iterdir():  # of the killed
        os.utime(path, (0, 0))
    put(cache, *(noise(number) for number in range(1_000, 1_080)))
    assert list((tmp_path / "tmp").iterdir()) == []
    assert taken(tmp_path) == accounted(cache) <= LIMIT


# -- with a store ------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with running_proxy(s3.port) as running:
        yield running


def opened(s3: S3Server, proxy: FaultyProxy, url: str, cache: Path) -> PackBlobStore:
    return PackBlobStore(url, cache_bytes=0, options=s3.options(proxy.endpoint), cache=BlobCache(cache, 50_000_000))


def test_what_was_fetched_is_not_fetched_again(s3: S3Server, proxy: FaultyProxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    blobs = [noise(number, 50_000) for number in range(40)]
    opened(s3, proxy, url, tmp_path / "writer").put(named(*blobs))
    reader = opened(s3, proxy, url, tmp_path / "reader")
    assert reader.get_many([blob_id(data) for data in blobs[10:20]]) == named(*blobs[10:20])
    fetched = [item.answered_bytes for item in proxy.reads()]
    assert len(fetched) == 2, "the pack's index, and the neighbours in one go"
    assert 500_000 <= fetched[1] <= 510_000
    again = opened(s3, proxy, url, tmp_path / "reader")
    for data in blobs[10:20]:
        assert again.get(blob_id(data)) == data
    assert len(proxy.reads()) == 2, "neither the index nor a blob is fetched again"
    (entry,) = (tmp_path / "reader").rglob(blob_id(blobs[10])[2:])
    entry.write_bytes(b"damaged")
    assert again.get(blob_id(blobs[10])) == blobs[10]
    assert len(proxy.reads()) == 4
    assert again.get(blob_id(blobs[10])) == blobs[10]
    assert len(proxy.reads()) == 4


def test_nodes_of_trees_lie_together_and_come_together(s3: S3Server, proxy: FaultyProxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    buffer = BlobBuffer(PackBlobStore(url, options=s3.options(), cache=None))
    contents = [noise(number, 1_000) for number in range(100)]
    roots = []
    for number in range(30):  # directories, each after what is in it
        for data in contents[3 * number : 3 * number + 3]:
            buffer.add(data)
        entries: dict[bytes, bytes | None] = {noise(part, 8): noise(number, 40) for part in range(100)}
        roots.append(nodes.update(buffer, None, entries))
    buffer.flush()
    cache = BlobCache(tmp_path, 50_000_000)
    reader = PackBlobStore(url, options=s3.options(proxy.endpoint), cache=cache)
    for root in roots:
        assert len(list(nodes.items(reader, root))) == 100
    assert len(proxy.reads()) <= 6, "the index, and stretches of 64 KiB"
    assert [data for data in contents if cache.get(raw(data)) is not None] == []


def test_concurrent_readers_fetch_a_blob_once(s3: S3Server, proxy: FaultyProxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    data = noise(7, 200_000)
    opened(s3, proxy, url, tmp_path / "writer").put(named(data))
    stores = [opened(s3, proxy, url, tmp_path / "reader") for _ in range(3)]
    for store in stores:
        assert not store.missing([blob_id(data)])
    before = len(proxy.reads())
    proxy.delay_s = 0.3
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda store=store: results.append(store.get(blob_id(data)))) for store in stores * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [data] * 12
    assert len(proxy.reads()) - before == 1


def test_a_reader_of_everything_reads_stretches(s3: S3Server, proxy: FaultyProxy) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    packs = [[noise(1_000 * pack + number, 20_000) for number in range(60)] for pack in range(3)]
    writer = PackBlobStore(url, options=s3.options(), cache=None)
    for blobs in packs:
        writer.put(named(*blobs))
    store = PackBlobStore(url, cache_bytes=0, options=s3.options(proxy.endpoint), cache=None)
    reader = BulkReader(store)
    for blobs in packs:
        for data in blobs:
            assert reader.get(blob_id(data)) == data
    assert len(proxy.reads()) <= 1 + 2 * 3, "a pack of the first blob's name; then indexes, and whole packs"
    with pytest.raises(NotFound):
        reader.get(blob_id(b"never"))
    damaged, neighbour = packs[1][30], packs[1][31]
    place = store._catalog.find(raw(damaged))
    assert place is not None
    path, offset = pack_object(place[0]), place[1].offset
    pack = bytearray(store._objects.read(path))
    pack[offset + 7] ^= 1
    store._objects.write(path, [bytes(pack)])
    again = BulkReader(PackBlobStore(url, cache_bytes=0, options=s3.options(), cache=None))
    assert again.get(blob_id(packs[1][29])) == packs[1][29]
    assert again.get(blob_id(neighbour)) == neighbour
    with pytest.raises(Corrupt, match=blob_id(damaged)):
        again.get(blob_id(damaged))


def test_a_check_reads_a_small_pack_once_and_a_large_one_in_parts(s3: S3Server, proxy: FaultyProxy) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    small, large = noise(1, 1_000), [noise(number, 20_000) for number in range(2, 62)]
    writer = PackBlobStore(url, options=s3.options(), cache=None)
    writer.put(named(small))
    writer.put(named(*large))
    store = PackBlobStore(url, cache_bytes=0, options=s3.options(proxy.endpoint), cache=None)
    list(store.blob_ids())  # all places are known
    checker, before = PackChecker(store), len(proxy.reads())
    assert checker.get(blob_id(small)) == small
    assert len(proxy.reads()) - before == 1
    found, whole = store.get_stretch(blob_id(large[30]), 10 * 20_000)
    assert (list(found.values()), whole) == (large[30:40], None)
    found, whole = store.get_stretch(blob_id(large[30]), 60 * 30_000)
    assert (list(found.values()), whole) == (large, store.pack_of(blob_id(large[0])))
    assert checker.problem() is None


def test_a_check_reads_several_packs_ahead(s3: S3Server, proxy: FaultyProxy) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    writer = PackBlobStore(url, options=s3.options(), cache=None)
    blobs = [noise(number, 1_000) for number in range(10)]
    for number, data in enumerate(blobs):
        writer.put(named(data, noise(100 + number, 1_000)))  # the last one is the pack's key
    store = PackBlobStore(url, cache_bytes=0, options=s3.options(proxy.endpoint), cache=None)
    checker = PackChecker(store)
    checker.fetch([blob_id(data) for data in (*blobs, b"never")])
    before = len(proxy.reads())
    assert [checker.get(blob_id(data)) for data in blobs] == blobs
    checker.fetch([blob_id(data) for data in blobs])
    assert len(proxy.reads()) == before, "all of it was read, and each pack was checked"
    with pytest.raises(NotFound):
        checker.get(blob_id(b"never"))


def test_a_check_of_small_packs_finds_damage_around_their_blobs(s3: S3Server) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    store = PackBlobStore(url, cache_bytes=0, options=s3.options(), cache=None)
    blobs = [noise(number, 1_000) for number in range(2)]
    store.put(named(*blobs))
    [name] = store.packs()
    sound = store._objects.read(pack_object(name))
    for at, what in ((3, "its first 8 bytes"), (len(sound) - 60, "its index has another checksum")):
        store._objects.write(pack_object(name), [sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]])
        checker = PackChecker(store)
        assert [checker.get(blob_id(data)) for data in blobs] == blobs
        assert what in str(checker.problem())


def test_a_process_that_dies_while_fetching_blocks_no_other(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from chronicle.blobs.cache import BlobCache\n"
        "with BlobCache(Path(sys.argv[1]), 10**6).claim([b'k' * 32]):\n"
        "    print('held', flush=True); time.sleep(600)\n"
    )
    process = start(script, tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        got = threading.Event()

        def claim() -> None:
            with BlobCache(tmp_path, 10**6).claim([b"k" * 32]):
                got.set()

        thread = threading.Thread(target=claim)
        thread.start()
        with BlobCache(tmp_path, 10**6).claim([b"other" + b"k" * 27]):
            assert not got.is_set()
        process.kill()
        assert got.wait(20)
        thread.join()
    finally:
        process.kill()
        process.communicate(timeout=30)
