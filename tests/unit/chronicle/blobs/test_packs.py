"""The bytes of packs and index segments: pinned, and damage noticed wherever it is."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.blobs import ident
from chronicle.blobs.packs import pack_format
from chronicle.blobs.packs.segments import Segment, build_segment
from chronicle.errors import Corrupt, UnsupportedFormat
from chronicle.ids import BlobId
from chronicle.testing.blob_contract import named

GOLDEN_BLOBS = named(b"", b"hello", b"Hello, hello, hello! " * 20)
GOLDEN_PACK = (
    "4348525041434b0168656c6c6f28b52ffd60a400cd00005848656c6c6f2c20682120480400793815000762c6a1b87001634300e02cbba5"
    "f4f0c8e918a73e050b5ad7e95e79d220f7faeffb775d3011ee000000000000000d00000023000001a401af1349b9f5f9a1a6a0404dea36"
    "dcc9499bcb25c9adc112b7cc9a93cae41f32620000000000000008000000000000000000ea8f163db38682925e4491c5e58d4bb3506ef8"
    "c14eb78a86e908c5624a67200f000000000000000800000005000000050000000000000000300000000300000000000000000000000003"
    "e8e79ccc1f56015b94e5c6b78a8b48cf6343485250454e4401"
)
"""Written by the first version, and to be read for ever."""
GOLDEN_PLAIN = (
    "4348525041434b0168656c6c6faf1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f326200000000000000080000"
    "00000000000000ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f00000000000000080000000500000005"
    "0030314b3841424344454647484a4b4d4e5051525354565758593030314b3841424344454647484a4b4d4e505152535456575859313031"
    "4b3841424344454647484a4b4d4e5051525354565758593230314b3841424344454647484a4b4d4e505152535456575859330000000000"
    "00000d0000000200010002000100000000000003e8cb14c49189ae30f708cd1edd0399537043485250454e4401"
)
GOLDEN_GROUP_BLOBS = named(
    b"a line of text that is there\n" * 4 + b"one", b"a line of text that is there\n" * 4 + b"two", b"alone"
)
GOLDEN_GROUPS = (
    "4348525041434b0228b52ffd20f7ad01008402020000007761206c696e65206f66207465787420746861742069732074686572650a6f6e"
    "6574776f0300510fe988801ab7e5b4616c6f6e6518d3e8c7f4b2b882124e742f7e938264744387b443bcd0a6db96633b8d4b8e78000000"
    "00000000080000003e000000770272180be9240896122bd07f433e7bc2939b4ab58d106364dad8aab52516188e42000000000000004600"
    "0000050000000500cf4cd547788aa62473769a3bf9f79e8d792ac6f54ad93bb08f9a84f3dacec8eb00000000000000080000003e000000"
    "7703000000000000004b0000000300000000000000000000000003e844bad8496dd819443ed45c900e9f1fcb43485250454e4402"
)
"""With the first two of them in a group, of the second version, and to be read for ever."""
GOLDEN_SEGMENT = (
    "434852494e44580100000002000000000000000230314b3841424344454647484a4b4d4e5051525354565758593030314b384142434445"
    "4647484a4b4d4e505152535456575859310000000000000001000000020000000200000002000000020000000200000002000000020000"
    "00020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200"
    "00000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002"
    "00000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000"
    "02000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000"
    "00020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200"
    "00000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002"
    "00000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000"
    "02000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000"
    "00020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200"
    "00000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002"
    "00000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000"
    "02000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000"
    "00020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200"
    "00000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002"
    "00000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000"
    "02000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000"
    "00020000000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000200"
    "00000200000002000000020000000200000002000000020000000200000002000000020000000200000002000000020000000201000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000008000000010000000201020100000000"
    "000000000000000000000000000000000000000000000000000000000001000000000000000900000102000002040013f87aecd49e7158"
    "393f6db0027ebb84"
)
NAMES = ["01K8ABCDEFGHJKMNPQRSTVWXY" + last for last in "0123"]


def encoded(blobs: dict[BlobId, bytes]) -> bytes:
    return b"".join(pack_format.encode_pack(blobs)[0])


def decoded(pack: bytes) -> dict[BlobId, bytes]:
    start = pack_format.index_start("P", len(pack), pack[-pack_format.TRAILER_BYTES :])
    entries = pack_format.read_index("P", pack[start:]).entries
    return {
        ident.from_raw(entry.raw_id): pack_format.unpack_blob(
            "P", entry, pack[entry.offset : entry.offset + entry.stored]
        )
        for entry in entries
    }


def test_golden_pack() -> None:
    assert decoded(bytes.fromhex(GOLDEN_PACK)) == GOLDEN_BLOBS


def test_golden_pack_of_what_is_not_compressed() -> None:
    """Compressed bytes may differ between versions of zstd; all others may not."""
    links = pack_format.Links((NAMES[0],), (NAMES[1], NAMES[2]), (NAMES[3],))
    pack = b"".join(pack_format.encode_pack(named(b"", b"hello"), 1_000, links)[0])
    assert pack.hex() == GOLDEN_PLAIN
    index = pack_format.read_index("P", pack[pack_format.index_start("P", len(pack), pack) :])
    assert (index.made_ms, index.links) == (1_000, links)
    assert pack_format.pack_size("P", pack[-100:]) == len(pack)


@given(
    st.lists(st.binary(max_size=300) | st.binary(max_size=5).map(lambda part: part * 200), max_size=8).map(
        lambda blobs: named(*blobs)
    )
)
def test_packs_round_trip(blobs: dict[BlobId, bytes]) -> None:
    assert decoded(encoded(blobs)) == blobs


@given(
    st.lists(
        st.lists(st.binary(max_size=50) | st.binary(max_size=5).map(lambda part: part * 90), min_size=1, max_size=6),
        max_size=5,
    )
)
def test_groups_round_trip(groups: list[list[bytes]]) -> None:
    seen: set[bytes] = set()
    distinct = []
    for group in groups:
        left = [data for data in dict.fromkeys(group) if data not in seen]
        seen.update(left)
        distinct += [named(*left)] if left else []
    parts, entries = pack_format.encode_groups(distinct)
    pack = b"".join(parts)
    assert decoded(pack) == named(*seen)
    assert sorted(entry.raw_id for entry in entries) == [entry.raw_id for entry in entries]
    for members in distinct:
        own = [entry for entry in entries if ident.from_raw(entry.raw_id) in members]
        assert len({(entry.offset, entry.stored) for entry in own}) == 1
        first = own[0]
        together = pack_format.unpack_group("P", own, pack[first.offset : first.offset + first.stored])
        assert {ident.from_raw(entry.raw_id): data for entry, data in together} == members


def test_golden_pack_with_a_group() -> None:
    assert decoded(bytes.fromhex(GOLDEN_GROUPS)) == GOLDEN_GROUP_BLOBS


def test_versions_of_a_text_cost_little_in_a_group() -> None:
    text = random.Random(1).randbytes(8_000).hex().encode()
    versions = named(*(text[: 1000 * n] + b"changed" + text[1000 * n :] for n in range(5)))
    assert len(b"".join(pack_format.encode_groups([versions])[0])) < 1.2 * len(encoded(named(text)))


def test_one_damaged_blob_of_a_group_is_told_and_the_others_are_had() -> None:
    group = named(b"a" * 100, b"b" * 100)
    parts, entries = pack_format.encode_groups([group])
    pack = b"".join(parts)
    wrong = [replace(entries[0], raw_id=bytes(32)), entries[1]]
    found = list(pack_format.unpack_group("P", wrong, pack[entries[0].offset : entries[0].offset + entries[0].stored]))
    assert isinstance(found[0][1], Corrupt)
    assert found[1][1] == group[ident.from_raw(entries[1].raw_id)]


def test_incompressible_blobs_lie_as_they_are() -> None:
    data = bytes(range(256)) * 2
    assert data[:256] in encoded(named(data[:256]))
    assert len(encoded(named(b"x" * 10_000))) < 200


@pytest.mark.parametrize(
    ("golden", "blobs"), [(GOLDEN_PACK, GOLDEN_BLOBS), (GOLDEN_GROUPS, GOLDEN_GROUP_BLOBS)], ids=["plain", "groups"]
)
def test_a_changed_bit_is_noticed_or_changes_nothing(golden: str, blobs: dict[BlobId, bytes]) -> None:
    """Some bits mean nothing: the magic at the start is for people, and zstd leaves a few unused."""
    whole = bytes.fromhex(golden)
    harmless = 0
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            try:
                assert decoded(bytes(damaged)) == blobs
                harmless += place >= len(pack_format.HEAD)
            except (Corrupt, UnsupportedFormat):
                continue
    assert harmless <= 4


@given(st.integers(0, len(GOLDEN_PACK) // 2 - 1))
def test_a_pack_cut_short_is_noticed(size: int) -> None:
    with pytest.raises(Corrupt, match="pack P"):
        decoded(bytes.fromhex(GOLDEN_PACK)[:size])


def entry(number: int, offset: int = 0) -> pack_format.PackEntry:
    return pack_format.PackEntry(number.to_bytes(32, "little"), offset, number, number * 2, number % 2)


def test_golden_segment() -> None:
    assert build_segment([(NAMES[0], entry(1, 8)), (NAMES[1], entry(258, 9))]).hex() == GOLDEN_SEGMENT


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 2_000)), max_size=200), st.integers(0, 2_000))
def test_segments_find_what_is_in_them(found: list[tuple[str, int]], other: int) -> None:
    segment = Segment("s", build_segment((name, entry(number)) for name, number in found))
    expected: dict[int, set[str]] = {}
    for name, number in found:
        expected.setdefault(number, set()).add(name)
    assert segment.count == len(expected)
    assert set(segment.pack_names()) == {name for name, _ in found}
    for number in {*expected, other}:
        place = segment.find(entry(number).raw_id)
        if number in expected:
            assert place is not None
            assert place[0] in expected[number]
            assert place[1] == entry(number)
        else:
            assert place is None
    assert sorted(place[1].raw_id for place in segment.entries()) == sorted(entry(number).raw_id for number in expected)


@given(st.integers(0, 1_300), st.integers(0, 7))
def test_a_damaged_segment_is_noticed(place: int, bit: int) -> None:
    whole = bytearray(bytes.fromhex(GOLDEN_SEGMENT))
    with pytest.raises(Corrupt):
        Segment("s", bytes(whole[: place % len(whole)]))
    whole[place % len(whole)] ^= 1 << bit
    with pytest.raises(Corrupt):
        Segment("s", bytes(whole))
