"""Lines of packs in stores that can only be listed: any node finds what a commit leads to, without a listing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from chronicle.blobs import blob_id, ident
from chronicle.blobs.cache import BlobCache
from chronicle.blobs.gc.collector import GcReport, GcRules, collect
from chronicle.blobs.media.fsspec_objects import RemoteObjects
from chronicle.blobs.opening import open_blobs
from chronicle.blobs.packs.catalog import INDEX_FOLDER, PACK_FOLDER, pack_object, read_pack_index
from chronicle.blobs.packs.linked_catalog import SKEW_MS, LinkedCatalog, key_name
from chronicle.blobs.packs.opening import open_objects
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.blobs.port import BlobStore
from chronicle.clock import ManualClock
from chronicle.errors import NotFound, Unavailable
from chronicle.ids import BlobId
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.testing.blob_contract import named
from tests.contract.served_stores import serving
from tests.faulty_proxy import FaultyProxy, running_proxy
from tests.s3_server import BUCKET, S3Server

GRACE_S = 100.0
WEEK_S = 7 * 24 * 3600.0


class Line:
    """Commits of one workspace, each with a reference to the one before, as in `OplogRoot.previous`."""

    def __init__(self, name: bytes = b"line") -> None:
        self._name = name
        self.keys: list[BlobId] = []
        self.blobs: dict[BlobId, bytes] = {}

    def put(self, store: BlobStore, times: int = 1) -> None:
        for _ in range(times):
            number = b"%s %d" % (self._name, len(self.keys))
            previous = b"\xc4\x20" + ident.to_raw(self.keys[-1]) if self.keys else b""
            made = named(b"content of %s" % number, b"node of %s" % number, b"commit %s %s" % (number, previous))
            store.put(made)
            self.blobs |= made
            self.keys.append(list(made)[-1])

    def is_read_by(self, store: BlobStore) -> bool:
        """Whether a new opening finds all of it, from the last commit on."""
        assert store.get(self.keys[-1]) == self.blobs[self.keys[-1]]
        return all(store.get(key) == data for key, data in reversed(self.blobs.items()))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store, in which a minute passes between any two looks at what is condemned."""
    monkeypatch.setattr(RemoteObjects, "stamp", lambda _self, _name: uuid4().hex)
    url = f"memory://{uuid4().hex}"
    yield url
    if fsspec.filesystem("memory").exists(url):
        fsspec.filesystem("memory").rm(url, recursive=True)


@pytest.fixture
def opener(url: str, clock: ManualClock) -> Callable[[], PackBlobStore]:
    return lambda: PackBlobStore(url, clock=clock, cache_bytes=0)


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found by a listing."""
    monkeypatch.setattr(LinkedCatalog, "scan", lambda _self: None)


@pytest.mark.usefixtures("unlisted")
@pytest.mark.parametrize("turns", [1, 2, 15, 16, 17, 40, 300])
def test_a_commit_leads_to_all_before_it(opener: Callable[[], PackBlobStore], turns: int) -> None:
    line = Line()
    line.put(opener(), turns)
    assert line.is_read_by(opener())


@pytest.mark.usefixtures("unlisted")
def test_a_line_goes_on_where_its_last_commit_was_read(opener: Callable[[], PackBlobStore]) -> None:
    line = Line()
    for turns in (3, 1, 20, 1, 1, 40, 2):
        store = opener()  # another node each time
        if line.keys:
            store.get(line.keys[-1])
        line.put(store, turns)
    assert line.is_read_by(opener())


@pytest.mark.usefixtures("unlisted")
def test_lines_of_one_process_do_not_lose_each_other(opener: Callable[[], PackBlobStore]) -> None:
    lines = [Line(b"%d" % number) for number in range(5)]
    for line in lines:
        line.put(opener(), 3)
    node = opener()
    for line in lines:
        node.get(line.keys[-1])
    for _ in range(12):
        for line in lines:
            line.put(node)
    for line in lines:
        assert line.is_read_by(opener())


@pytest.mark.usefixtures("unlisted")
def test_a_fork_at_an_older_commit_finds_what_that_one_leads_to(opener: Callable[[], PackBlobStore]) -> None:
    line = Line()
    line.put(opener(), 50)
    fork = Line(b"fork")
    fork.keys, fork.blobs = line.keys[:20], {key: line.blobs[key] for key in list(line.blobs)[: 3 * 20]}
    node = opener()
    assert node.get(fork.keys[-1])
    fork.put(node, 5)
    assert fork.is_read_by(opener())


@pytest.mark.usefixtures("unlisted")
def test_a_line_goes_on_on_a_node_that_had_its_last_commit_in_the_cache(
    s3: S3Server, tmp_path: Path, clock: ManualClock
) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"

    def open_on(node: str) -> PackBlobStore:
        cache = BlobCache(tmp_path / node, 50_000_000)
        return PackBlobStore(url, clock=clock, cache_bytes=0, options=s3.options(), cache=cache)

    line = Line()
    line.put(open_on("one"), 3)
    again = open_on("one")
    again.get(line.keys[-1])
    line.put(again, 2)
    assert line.is_read_by(open_on("two"))
    for part in (tmp_path / "one" / "parts").rglob("*"):
        if part.is_file():
            part.unlink()  # evicted, other than the commit
    last = open_on("one")
    last.get(line.keys[-1])
    line.put(last)
    assert line.is_read_by(open_on("three"))


@pytest.mark.usefixtures("unlisted")
def test_a_line_goes_on_through_a_store_process_that_was_started_again(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host finds the last commit in the node's cache, and the process must learn of it."""
    monkeypatch.setenv("CHRONICLE_CACHE_DIR", str(tmp_path / "node"))
    url = f"s3://{BUCKET}/{uuid4().hex}"
    line = Line()
    for number in range(3):
        directory = tmp_path / f"{number}"
        directory.mkdir()
        with (
            closing(PackBlobStore(url, options=s3.options())) as blobs,
            closing(SqliteJournalStore(directory / "journal.db")) as journal,
            serving(journal, blobs, directory) as access,
            closing(open_blobs(access.link("host_1").blobs_url)) as host,
        ):
            if line.keys:
                assert host.get(line.keys[-1]) == line.blobs[line.keys[-1]]
                for blob in (tmp_path / "node" / "blobs").rglob("*"):
                    if blob.is_file():
                        blob.unlink()
                assert {key: host.get(key) for key in line.blobs} == line.blobs
            line.put(host, 2)
    reader = PackBlobStore(url, cache_bytes=0, options=s3.options(), cache=BlobCache(tmp_path / "two", 50_000_000))
    assert line.is_read_by(reader)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with running_proxy(s3.port) as running:
        yield running


def requests(proxy: FaultyProxy) -> list[str]:
    return ["LIST" if "list-type" in item.path else item.method for item in proxy.exchanges]


def test_requests_of_a_turn_and_of_an_opening(s3: S3Server, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"

    def open_on(node: str, proxy: FaultyProxy) -> PackBlobStore:
        cache = BlobCache(tmp_path / node, 50_000_000)
        return PackBlobStore(url, cache_bytes=0, options=s3.options(proxy.endpoint), cache=cache)

    line = Line()
    with running_proxy(s3.port) as proxy:
        line.put(open_on("one", proxy), 101)
    sent = requests(proxy)
    assert sent.count("PUT") <= 1 + 101 + 101 // 16, "the format; a pack each, and a segment for every 16"
    assert set(sent) == {"PUT", "GET"}
    assert sent.count("GET") <= 4, "the format, and what is condemned, each minute"
    with running_proxy(s3.port) as proxy:
        reader = open_on("two", proxy)
        for key in list(line.blobs)[:-4:-1]:
            assert reader.get(key) == line.blobs[key]
    assert requests(proxy) == ["GET"], "index, commit and nodes come in one piece"
    with running_proxy(s3.port) as proxy:
        again = open_on("two", proxy)
        assert again.get(line.keys[-1]) == line.blobs[line.keys[-1]]
        line.put(again)
    assert sorted(requests(proxy)) == ["GET", "GET", "PUT"], "the format of the store, and what is condemned"


def test_a_put_asks_for_packs_of_others_only_for_large_blobs(s3: S3Server, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"
    line, large = Line(), random.Random(1).randbytes(100_000)
    writer = PackBlobStore(url, options=s3.options(), cache=None)
    line.put(writer, 12)
    writer.put(named(large))
    with running_proxy(s3.port) as proxy:
        cache = BlobCache(tmp_path, 50_000_000)
        other = PackBlobStore(url, cache_bytes=0, options=s3.options(proxy.endpoint), cache=cache)
        assert line.is_read_by(other)
        assert other.get(blob_id(large)) == large
        before = len(requests(proxy))
        other.put({**line.blobs, **named(large, b"a new root")})
    assert sorted(requests(proxy)[before:]) == ["GET", "GET", "GET", "PUT"], "the last one of the index of its pack"
    assert proxy.exchanges[-1].method == "PUT"
    sizes = open_objects(url, s3.options()).sizes(PACK_FOLDER)
    assert sum(size > 90_000 for size in sizes.values()) == 1, "the large blob is not stored again"


def test_a_pack_is_not_written_over_another_one_of_its_key(url: str, opener: Callable[[], PackBlobStore]) -> None:
    """Two nodes store different blobs below one root."""
    root = b"root"
    opener().put(named(b"only of the first", root))
    other = opener()
    other.put(named(b"only of the second", root))
    for data in (b"only of the first", b"only of the second", root):
        assert opener().get(blob_id(data)) == data
    assert len(other.packs()) == 2
    assert key_name(ident.to_raw(blob_id(root))) in other.packs()


def test_a_pack_that_takes_the_place_of_a_collected_one_is_read_as_it_is(
    s3: S3Server, tmp_path: Path, clock: ManualClock
) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"

    def opened() -> PackBlobStore:
        cache = BlobCache(tmp_path / "cache", 50_000_000)
        return PackBlobStore(url, clock=clock, cache_bytes=0, options=s3.options(), cache=cache)

    def forget_blobs() -> None:
        for blob in (tmp_path / "cache" / "blobs").rglob("*"):
            if blob.is_file():
                blob.unlink()

    root = b"root"
    opened().put(named(b"before" * 100, root))
    forget_blobs()
    assert opened().get(blob_id(root)) == root  # its index stays on this node
    objects = open_objects(url, s3.options())
    (pack,) = objects.names(PACK_FOLDER)
    objects.delete(pack)
    PackBlobStore(url, clock=clock, options=s3.options(), cache=None).put(named(b"after", b"and more", root))
    assert objects.names(PACK_FOLDER) == [pack]
    forget_blobs()
    reader = opened()
    for data in (root, b"after", b"and more"):
        assert reader.get(blob_id(data)) == data


@pytest.mark.parametrize("how", ["asked for", "put", "put after its root"])
def test_a_blob_of_a_collected_pack_is_put_though_its_name_is_given_again(
    s3: S3Server, tmp_path: Path, how: str
) -> None:
    """A node still has the index of the pack that a collection removed."""
    url = f"s3://{BUCKET}/{uuid4().hex}"

    def open_on(node: str) -> PackBlobStore:
        cache = BlobCache(tmp_path / node, 50_000_000)
        return PackBlobStore(url, cache_bytes=0, options=s3.options(), cache=cache)

    large, root = random.Random(1).randbytes(100_000), b"root"
    open_on("one").put(named(large, root))
    assert open_on("one").get(blob_id(root)) == root
    objects = open_objects(url, s3.options())
    (pack,) = objects.names(PACK_FOLDER)
    objects.delete(pack)
    stale = open_on("one")
    assert stale.get(blob_id(root)) == root, "its index is on this node"
    follows = b"follows \xc4\x20" + ident.to_raw(blob_id(root))
    if how == "put after its root":
        stale.put(named(follows))
        stale.put(named(root))
    else:
        open_on("two").put(named(root))
    assert pack in objects.names(PACK_FOLDER), "with other blobs"
    if how == "asked for":
        assert stale.missing([blob_id(large)]) == {blob_id(large)}
    else:
        stale.put(named(b"and " + follows))
    stale.put(named(large, b"refers to it"))
    assert open_on("three").get(blob_id(large)) == large
    assert open_on("one").get(blob_id(large)) == large


def test_what_is_in_the_place_of_a_collected_pack_is_found_on_a_node_with_the_old_index(
    s3: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/{uuid4().hex}"

    def open_on(node: str) -> PackBlobStore:
        cache = BlobCache(tmp_path / node, 50_000_000)
        return PackBlobStore(url, cache_bytes=0, options=s3.options(), cache=cache)

    root = b"root"
    open_on("one").put(named(b"before", root))
    lasting = open_on("one")
    assert lasting.get(blob_id(root)) == root
    objects = open_objects(url, s3.options())
    (pack,) = objects.names(PACK_FOLDER)
    objects.delete(pack)
    open_on("two").put(named(b"after", root))
    assert objects.names(PACK_FOLDER) == [pack]
    for reader in (lasting, open_on("one")):
        assert reader.get(blob_id(root)) == root, "from this node"
        assert reader.get(blob_id(b"after")) == b"after"


class Dies(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("happened", [False, True], ids=["before", "after"])
@pytest.mark.usefixtures("unlisted")
def test_a_death_at_any_write_loses_no_commit(
    opener: Callable[[], PackBlobStore], monkeypatch: pytest.MonkeyPatch, *, happened: bool
) -> None:
    """Writes of packs, and of segments, which a death leaves unwritten, or written and linked by nothing."""
    line = Line()
    line.put(opener(), 14)
    real = RemoteObjects._write
    deaths = 0
    while len(line.keys) < 60:
        store = opener()
        store.get(line.keys[-1])
        left = [1 + deaths % 5]

        def write(self: RemoteObjects, name: str, data: bytes, mode: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0 and not happened:
                raise Dies
            real(self, name, data, mode)
            if left[0] == 0:
                raise Dies

        with monkeypatch.context() as patch:
            patch.setattr(RemoteObjects, "_write", write)
            try:
                line.put(store, 10)
            except Dies:
                deaths += 1
            else:
                pytest.fail("it did not die")
        assert line.is_read_by(opener())
        after = opener()
        after.get(line.keys[-1])
        line.put(after, 3)
    assert deaths > 5


@pytest.mark.usefixtures("unlisted")
def test_a_segment_that_cannot_be_written_fails_no_put(
    opener: Callable[[], PackBlobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("index")

    line, store = Line(), opener()
    with monkeypatch.context() as patch:
        patch.setattr(RemoteObjects, "write", away)  # packs are created
        with pytest.raises(Unavailable):
            store.put(named(b"the format of the store"))
    line.put(store)
    with monkeypatch.context() as patch:
        patch.setattr(RemoteObjects, "write", away)
        line.put(store, 30)
    assert line.is_read_by(opener())
    line.put(store)
    assert line.is_read_by(opener())


# -- collections ------------------------------------------------------------------------------------------------------


def collected(url: str, clock: ManualClock, *lines: Line, kept_s: float = 0.0, alone: bool = False) -> GcReport:
    reached = {key: b"" for line in lines for key in line.blobs}
    return collect(url, lambda: reached, GcRules(grace_s=GRACE_S, kept_s=kept_s, alone=alone), clock=clock)


@pytest.mark.usefixtures("unlisted")
def test_what_was_merged_is_found_by_old_commits_and_new_ones(
    url: str, opener: Callable[[], PackBlobStore], clock: ManualClock
) -> None:
    line = Line()
    line.put(opener(), 100)
    writer = opener()
    writer.get(line.keys[-1])
    line.put(writer, 5)
    clock.advance(GRACE_S + 1)
    assert collected(url, clock, line).merged > 100
    line.put(writer, 5)
    assert line.is_read_by(opener()), "with the merged packs there"
    clock.advance(GRACE_S + 1)
    assert collected(url, clock, line).dropped > 100
    line.put(writer, 20)
    assert line.is_read_by(writer)
    assert line.is_read_by(opener()), "without them"
    clock.advance(3600)
    assert collected(url, clock, line).dropped == 0
    assert line.is_read_by(opener())


def test_a_reader_finds_what_was_merged_after_it_read_an_index(
    url: str, opener: Callable[[], PackBlobStore], clock: ManualClock
) -> None:
    line = Line()
    line.put(opener(), 70)
    clock.advance(SKEW_MS / 1000 + 1)
    assert set(opener().blob_ids()) == set(line.blobs), "this leaves an index"
    reader, others = opener(), {key: data for key, data in line.blobs.items() if key not in line.keys}
    assert {key: reader.get(key) for key in others} == others
    for _ in range(2):
        clock.advance(SKEW_MS / 1000 + 1)
        report = collected(url, clock, line)
    assert report.dropped > 60
    assert {key: reader.get(key) for key in others} == others


def test_an_index_that_was_written_while_packs_were_removed_hides_no_blob(
    url: str, opener: Callable[[], PackBlobStore], clock: ManualClock
) -> None:
    """A process lists the packs, gc removes some and writes an index, and the process replaces that one."""
    line, objects = Line(), open_objects(url)
    line.put(opener(), 70)
    clock.advance(SKEW_MS / 1000 + 1)
    assert collected(url, clock, line).merged > 60
    for name in objects.names(INDEX_FOLDER):
        objects.delete(name)
    assert set(opener().blob_ids()) == set(line.blobs), "this leaves an index, with the packs that were merged"
    written = {name: objects.read(name) for name in objects.names(INDEX_FOLDER)}
    clock.advance(SKEW_MS / 1000 + 1)
    assert collected(url, clock, line).dropped > 60
    for name, data in written.items():
        objects.write(name, [data])
    reader = opener()
    assert {key: reader.get(key) for key in line.blobs} == line.blobs


def test_an_index_of_a_pack_whose_name_another_one_has_hides_no_blob(
    url: str, opener: Callable[[], PackBlobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronicle.blobs.packs.linked_catalog._UNCOVERED_LIMIT", 1)
    data, roots = b"in both", (b"root", b"another root")
    for root in roots:
        opener().put(named(data, root))
    assert len(set(opener().blob_ids())) == 3, "this leaves an index, with one place of each"
    pack = opener().pack_of(blob_id(data))
    assert pack is not None
    (root,) = (root for root in roots if key_name(ident.to_raw(blob_id(root))) == pack)
    open_objects(url).delete(pack_object(pack))
    opener().put(named(root))
    reader = opener()
    assert {each: reader.get(blob_id(each)) for each in (data, *roots)} == {each: each for each in (data, *roots)}


@pytest.mark.usefixtures("unlisted")
def test_a_writer_that_knows_a_removed_pack_puts_its_blobs_again(
    url: str, opener: Callable[[], PackBlobStore], clock: ManualClock
) -> None:
    line, kept = Line(), Line(b"kept")
    line.put(opener(), 20)
    sleeper = opener()
    assert line.is_read_by(sleeper)  # it has read links, segments and indexes
    kept.put(opener())
    for _ in range(3):
        clock.advance(GRACE_S + 1)
        collected(url, clock, kept)
    sleeper.put(line.blobs)
    clock.advance(GRACE_S - 1)
    assert line.is_read_by(opener())
    assert {key: sleeper.get(key) for key in line.blobs} == line.blobs


def test_the_last_commit_of_a_line_is_opened_in_one_request_after_a_merge(
    s3: S3Server, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    for name, value in (("AWS_ENDPOINT_URL_S3", s3.endpoint), ("AWS_ACCESS_KEY_ID", "testing")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    url = f"s3://{BUCKET}/{uuid4().hex}"
    line = Line()
    line.put(PackBlobStore(url, clock=clock, cache=None), 40)
    for _ in range(2):
        clock.advance(SKEW_MS / 1000 + 1)
        collected(url, clock, line)
    assert len(PackBlobStore(url, cache=None).packs()) == 2, "what was merged, and the last one"
    options = s3.options(proxy.endpoint)
    reader = PackBlobStore(url, cache_bytes=0, options=options, cache=BlobCache(tmp_path / "cache", 50_000_000))
    assert reader.get(line.keys[-1]) == line.blobs[line.keys[-1]]
    assert requests(proxy) == ["GET"]
    proxy.exchanges.clear()
    assert reader.get(line.keys[3]) == line.blobs[line.keys[3]]
    assert requests(proxy) == ["GET"] * 4, "its name, the index, a shard of it, and the blob; no link is followed"


@pytest.mark.parametrize("happened", [False, True], ids=["before", "after"])
@pytest.mark.usefixtures("unlisted")
def test_a_death_at_any_write_of_a_collection_hides_no_commit(
    url: str,
    opener: Callable[[], PackBlobStore],
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    happened: bool,
) -> None:
    """Writes of copies, shards, the index and the list; removals of packs, and of what is derived."""
    line, writer = Line(), opener()
    line.put(writer, 40)
    write, delete = RemoteObjects._write, RemoteObjects.delete
    left = 0

    def step(act: Callable[[], None]) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not happened:
            raise Dies
        act()
        if left == 0:
            raise Dies

    deaths = 0
    for half in range(3):
        clock.advance(SKEW_MS / 1000 + 1)
        for steps in range(1, 1000):
            left = steps
            with monkeypatch.context() as patch:
                patch.setattr(RemoteObjects, "_write", lambda *given: step(lambda: write(*given)))
                patch.setattr(RemoteObjects, "delete", lambda *given: step(lambda: delete(*given)))
                try:
                    collected(url, clock, line)
                except Dies:
                    deaths += 1
                else:
                    break
            assert line.is_read_by(opener())
            if steps % 7 == half:
                line.put(writer)
                assert line.is_read_by(opener())
        else:
            pytest.fail("it never ends")
    assert deaths > 10
    assert line.is_read_by(writer)


def test_condemned_packs_are_kept_for_the_backup_window(
    url: str, opener: Callable[[], PackBlobStore], clock: ManualClock
) -> None:
    """A journal that is restored to a moment of the last week refers to what nothing refers to now."""
    line, lost, later = Line(), Line(b"lost"), Line(b"later")
    for each in (line, lost, later):
        each.put(opener(), 3)
    clock.advance(GRACE_S + 1)
    assert collected(url, clock, line, later, kept_s=WEEK_S).condemned == 3
    clock.advance(GRACE_S + 1)
    assert collected(url, clock, line, later, kept_s=WEEK_S).dropped == 0, "from now on they are kept for a week"
    clock.advance(WEEK_S / 2)
    report = collected(url, clock, line, kept_s=WEEK_S)
    assert (report.condemned, report.dropped) == (3, 0), "others are condemned meanwhile"
    assert report.ripe_ms == clock.now_ms() + round((WEEK_S - WEEK_S / 2) * 1000)
    assert {key: opener().get(key) for key in lost.blobs} == lost.blobs
    # The journal is restored: it has "lost" again, and not "later".
    clock.advance(WEEK_S / 2 + 1)
    report = collected(url, clock, line, lost, kept_s=WEEK_S)
    assert (report.dropped, report.copied) == (3, 9)
    assert {key: opener().get(key) for key in lost.blobs} == lost.blobs
    clock.advance(WEEK_S)
    assert collected(url, clock, line, lost, kept_s=WEEK_S).dropped == 3
    with pytest.raises(NotFound):
        opener().get(later.keys[0])
    assert line.is_read_by(opener())


def test_what_a_condemned_pack_had_and_was_deleted_meanwhile_is_kept_for_the_backup_window(
    url: str, opener: Callable[[], PackBlobStore], clock: ManualClock
) -> None:
    """The journal is restored to a moment at which something was reachable that is in a pack condemned before."""
    opener().put(named(b"kept for a while", *(b"garbage %d" % number for number in range(5))))
    deleted = Line(b"deleted")
    deleted.blobs = named(b"kept for a while")
    clock.advance(GRACE_S + 1)
    assert collected(url, clock, deleted, kept_s=WEEK_S).condemned == 1
    clock.advance(GRACE_S + 1)
    assert collected(url, clock, deleted, kept_s=WEEK_S).copied == 1
    clock.advance(WEEK_S - 1)  # then it is deleted, and the packs are dropped at the end of their week
    clock.advance(2)
    assert collected(url, clock, kept_s=WEEK_S).dropped == 1
    assert opener().get(*deleted.blobs) == b"kept for a while"
    assert collected(url, clock, deleted, kept_s=WEEK_S).damaged == []


def test_the_wait_for_the_backup_window_begins_again_when_the_journal_has_gone_back(
    url: str, opener: Callable[[], PackBlobStore], clock: ManualClock
) -> None:
    """What a restored journal has, and is deleted again, another restore may give it once more."""
    garbage = Line(b"garbage")
    garbage.put(opener())

    def collected_in(generation: int, reached: dict[BlobId, bytes]) -> GcReport:
        rules = GcRules(grace_s=GRACE_S, kept_s=WEEK_S, generation=generation)
        return collect(url, lambda: reached, rules, clock=clock)

    clock.advance(GRACE_S + 1)
    assert collected_in(0, {}).condemned == 1
    clock.advance(GRACE_S + 1)
    assert collected_in(0, {}).copied == 0
    clock.advance(WEEK_S - 1)  # the journal is restored, refers to it, and no more
    clock.advance(2)
    assert collected_in(1, {}).dropped == 0
    assert opener().get(garbage.keys[0]) == garbage.blobs[garbage.keys[0]]  # the journal is restored once more
    clock.advance(WEEK_S + 1)
    assert collected_in(1, {}).dropped == 1


def test_the_window_is_a_week_for_far_stores_and_nothing_for_others(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in s3.options()["client_kwargs"].items():
        assert name == "region_name"
        monkeypatch.setenv("AWS_DEFAULT_REGION", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    for url, waits in ((f"s3://{BUCKET}/{uuid4().hex}", True), (f"file://{tmp_path}/store", False)):
        clock = ManualClock()
        PackBlobStore(url, clock=clock, cache=None).put(named(b"garbage"))
        clock.advance(GRACE_S + 1)
        assert collect(url, dict, GcRules(grace_s=GRACE_S), clock=clock).condemned == 1
        clock.advance(GRACE_S + 1)
        assert collect(url, dict, GcRules(grace_s=GRACE_S), clock=clock).dropped == (not waits)
        clock.advance(WEEK_S + 1)
        assert collect(url, dict, GcRules(grace_s=GRACE_S), clock=clock).dropped == waits


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_a_damaged_shard_had_is_found(
    url: str, opener: Callable[[], PackBlobStore], monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    monkeypatch.setattr("chronicle.blobs.packs.shared_index._SHARD_ENTRIES", 20)
    line = Line()
    line.put(opener(), 70)
    assert set(opener().blob_ids()) == set(line.blobs)
    objects = open_objects(url)
    (shard,) = (name for name in objects.names("index") if name.endswith("/0003"))
    if is_lost:
        objects.delete(shard)
    else:
        objects.write(shard, [b"damaged"])
    reader = opener()
    assert {key: reader.get(key) for key in line.blobs} == line.blobs
    assert set(opener().blob_ids()) == set(line.blobs)
    assert {key: opener().get(key) for key in line.blobs} == line.blobs


def test_a_shared_index_that_cannot_be_used_is_not(url: str, opener: Callable[[], PackBlobStore]) -> None:
    line = Line()
    line.put(opener(), 70)
    objects = open_objects(url)
    assert set(opener().blob_ids()) == set(line.blobs)
    published = json.loads(objects.read("index/all"))
    for damage in (b"", b"?", b"[]", b'{"format": 9}', json.dumps(published | {"name": "0" * 26}).encode()):
        objects.write("index/all", [damage])
        assert line.is_read_by(opener())
        assert set(opener().blob_ids()) == set(line.blobs)
    for name in objects.names("index"):
        objects.write(name, [b"damaged"])
    assert line.is_read_by(opener())
    assert all(read_pack_index(objects, name).entries for name in opener().packs())
