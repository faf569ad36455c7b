"""The stored side of a workspace: histories, commits, local logs and undo files; and that their formats stay."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, UnsupportedFormat
from chronicle.ids import BlobId
from chronicle.workspace.content.content import Content
from chronicle.workspace.history import oplog, path_histories
from chronicle.workspace.history.oplog import Attr, Gap, Operation, OplogRoot
from chronicle.workspace.history.path_histories import PathHistory, Record
from chronicle.workspace.layer.disk.data_file import DataFile
from chronicle.workspace.layer.disk.log import LayerLog
from chronicle.workspace.layer.disk.log_records import Header, pack, unpack_ref
from chronicle.workspace.layer.disk.undo_file import UndoFile
from chronicle.workspace.layer.disk.version_file import VersionFile
from chronicle.workspace.port import TreeRef, Usage
from chronicle.workspace.trees.tree import EMPTY, Kind

if TYPE_CHECKING:
    from pathlib import Path

ID = BlobId("ab" * 32)


def record(number: int, seq: int | None = None) -> Record:
    return Record(
        number, seq or number * 10, 1_700_000_000_000 + number, "write", 3, Kind.FILE, Content(ID, 5, chunked=False)
    )


class CountingReader:
    def __init__(self, buffer: BlobBuffer) -> None:
        self.buffer = buffer
        self.reads = 0

    def get(self, blob_id: BlobId) -> bytes:
        self.reads += 1
        return self.buffer.get(blob_id)


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(0, 1200))
def test_histories_find_what_was_appended(batches: list[int], probe: int) -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    kept: PathHistory | None = None
    every: list[Record] = []
    for batch in batches:
        # Numbers leave gaps, as after a rollback.
        added = [record(2 * (len(every) + index) + 1) for index in range(batch)]
        every += added
        kept = path_histories.append(buffer, kept, added)
    if kept is None:
        return
    assert path_histories.all_records(buffer, kept) == every
    assert list(path_histories.oldest_first(buffer, kept)) == every
    assert kept.last == every[-1].number
    assert path_histories.find(buffer, kept, probe) == next((one for one in every if one.number == probe), None)
    before = [one for one in every if one.seq < probe * 10]
    assert path_histories.last_before(buffer, kept, probe * 10) == (before[-1] if before else None)


def test_any_of_many_versions_is_a_few_reads_away() -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    kept: PathHistory | None = None
    for start in range(1, 10_001, 100):
        kept = path_histories.append(buffer, kept, [record(number) for number in range(start, start + 100)])
    assert kept is not None
    reader = CountingReader(buffer)
    worst = 0
    for number in random.Random(7).sample(range(1, 10_001), 300):
        reader.reads = 0
        found = path_histories.find(reader, kept, number)
        assert found is not None
        assert found.number == number
        worst = max(worst, reader.reads)
    assert worst <= 24  # of 625 blocks: about twice their logarithm


def test_map_of_histories() -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    whole = path_histories.append(buffer, None, [record(1), Record(2, 25, 9, "delete", 4, Kind.FILE)])
    link = path_histories.append(
        buffer, None, [Record(1, 30, 9, "symlink", 4, Kind.SYMLINK, target=b"to", source=b"from")]
    )
    root = path_histories.update(buffer, None, {b"a": whole, b"d/l": link})
    assert path_histories.path_history(buffer, root, b"a") == whole
    assert path_histories.path_history(buffer, root, b"d/l") == link
    assert path_histories.path_history(buffer, root, b"b") is None


COMMIT = OplogRoot(
    turn=7,
    tree_id=EMPTY,
    previous=ID,
    root=Attr(1, 10**18, 10**18 + 1, 3, ID),
    histories=ID,
    commits=None,
    links=ID,
    next_ino=99,
    next_seq=1000,
    moved_seq=5,
    operations=(ID, ID),
    usage=Usage(5, 2),
    gaps=(Gap(b"d", 17, 2),),
    kept_bytes=12,
)


def test_formats_do_not_change() -> None:
    """Stored workspaces have these bytes. A change here is a new format, with a version of its own."""
    buffer = BlobBuffer(MemoryBlobStore())
    assert blob_id(oplog.encode_attr(COMMIT.root)) == "18d95be09c7907b6e16d7941bb68e3c74ef449ec8fd5fd23c1e5985f49fa4978"
    assert oplog.add_root(buffer, COMMIT) == "2029e3ed30c38cb6a1804c3b35f3ec18f890ed9062d3affa286216d08632d3c1"
    many = path_histories.append(buffer, None, [record(number) for number in range(1, 40)])
    assert (
        path_histories.update(buffer, None, {b"path": many})
        == "582dba79d6ab199df3758f0e6538cff57e8b33f22c29bb9d618a10a82c5e308b"
    )
    done = [Operation(1, 2, "rename", 3, b"p", 4, 5, b"s")]
    assert oplog.store_operations(buffer, done) == ("51f0d81a1f56553f424f92f31c96016dcf40837e109d1ada4d026d8adfee3c78",)
    assert (
        oplog.put_commit(buffer, None, 7, TreeRef(EMPTY, ID))
        == "7a5ef619bfb8c2b599a1c05a47b59f32aded2ed2e4ab8e2b134b146b46dde4fe"
    )
    assert (
        blob_id(Header("w", 2, TreeRef(EMPTY, ID), 3, 4, 5, 6, (7, 8)).encode())
        == "fd5e4197d496bc45ab1ed3b0a83d36528053b641b017a4501d2a5e34e128e3e2"
    )


def test_commits_round_trip() -> None:
    store = MemoryBlobStore()
    buffer = BlobBuffer(store)
    commit = oplog.add_root(buffer, COMMIT)
    assert oplog.read_root(buffer, commit) == COMMIT
    known = replace(COMMIT, usage=Usage(2**40, 0))
    assert oplog.read_root(buffer, oplog.add_root(buffer, known)) == known
    header = Header("w", 2, TreeRef(EMPTY, ID), 3, 4, 5, 6, (7, 8))
    assert Header.decode(header.encode()) == header
    recovered = replace(header, recovered=TreeRef(EMPTY, ID))
    assert Header.decode(recovered.encode()) == recovered
    assert unpack_ref(None) is None


def test_commits_by_turn() -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    root = None
    for turn in (1, 2, 5, 900):
        root = oplog.put_commit(buffer, root, turn, TreeRef(blob_id(b"%d" % turn), ID))
    for turn, expected in {0: None, 1: 1, 2: 2, 4: 2, 5: 5, 899: 5, 900: 900, 10**6: 900}.items():
        found = oplog.commit_at(buffer, root, turn)
        assert (found[0] if found is not None else None) == expected
        if found is not None:
            assert found[1].tree_id == blob_id(b"%d" % found[0])


def test_what_is_newer_is_refused() -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    newer = buffer.add(pack((3, "whatever")))
    with pytest.raises(UnsupportedFormat, match="this code reads"):
        oplog.read_root(buffer, newer)
    with pytest.raises(UnsupportedFormat, match="this code reads"):
        Header.decode(pack((0, 2, "whatever")))
    for damaged in (b"", b"\xc1", pack((1, 2)), pack("text"), pack((0,)), pack((0, 1, "w"))):
        with pytest.raises(Corrupt):
            oplog.read_root(buffer, buffer.add(damaged))
        with pytest.raises(Corrupt):
            oplog.decode_attr(damaged)
        with pytest.raises(Corrupt):
            Header.decode(damaged)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6), st.data())
def test_a_torn_log_keeps_its_sound_beginning(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    log = LayerLog.create(path, payloads[:1])
    ends = [log.end]
    for payload in payloads[1:]:
        log.append(payload)
        ends.append(log.end)
    log.close()
    cut = data.draw(st.integers(ends[0], ends[-1]))
    os.truncate(path, cut)
    if data.draw(st.booleans()):
        with path.open("ab") as file:
            file.write(data.draw(st.binary(max_size=30)))
    log, found = LayerLog.open(path)
    whole = sum(end <= cut for end in ends)
    assert found[:whole] == payloads[:whole]
    log.append(b"more")
    log.close()
    log, again = LayerLog.open(path)
    log.close()
    assert again == [*found, b"more"]


def test_a_log_without_a_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\0" * 100)
    (tmp_path / "log").write_bytes(b"garbage")
    with pytest.raises(Corrupt):
        LayerLog.open(tmp_path / "log")


changes = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 30_000), st.binary(min_size=1, max_size=9000)),
    st.tuples(st.just("truncate"), st.integers(0, 30_000), st.none()),
    st.tuples(st.just("version"), st.none(), st.none()),
)


@given(st.lists(changes, max_size=25), st.booleans())
def test_versions_read_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int, bytes]], reopened: bool
) -> None:
    directory = tmp_path_factory.mktemp("versions")

    def open_undo(number: int, make: bool) -> int:
        return os.open(directory / str(number), os.O_RDWR | (os.O_CREAT if make else 0) | os.O_APPEND)

    fd = os.open(directory / "data", os.O_RDWR | os.O_CREAT)
    data, content, kept = DataFile(1), b"", []
    for number, (what, offset, written) in enumerate(story):
        if what == "version":
            kept.append((data.pin(len(content)), content))
            continue
        if data.pinned is not None:
            data.unpin(UndoFile(number, data.pinned.size, open_undo))
        if what == "write":
            data.preserve(fd, offset, len(written))
            os.pwrite(fd, written, offset)
            content = content[:offset].ljust(offset, b"\0") + written + content[offset + len(written) :]
        else:
            data.preserve(fd, offset, max(0, len(content) - offset))
            os.ftruncate(fd, offset)
            content = content[:offset].ljust(offset, b"\0")
    if reopened:  # by another process, which has what is on disk
        found = []
        for undo in data.undos:
            fresh = UndoFile(undo.number, undo.size, open_undo)
            fresh.recover()
            fresh.level = undo.level
            found.append(fresh)
        data.undos = found
    for held, expected in kept:
        with VersionFile(os.dup(fd), held, lambda _: pytest.fail("it is not stored")) as file:
            assert file.readall() == expected
    os.close(fd)
