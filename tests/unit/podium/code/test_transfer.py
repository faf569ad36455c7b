"""A bundle as bytes: what is sent is what is stored, and nothing of what does not fit."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.blobs.ident import blob_id
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import InvalidInput, UnsupportedFormat
from podium.code.manifest import BundledFile, Manifest, read_manifest
from podium.code.packing import MAX_BUNDLE_BYTES, MAX_FILE_BYTES
from podium.code.transfer import read_sent, sent, store_sent

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = {"agent.py": b"x = 1\n", "a/same.py": b"x = 1\n", "a/empty.py": b"", "z.py": b"y\n" * 1000}


def packed(files: Mapping[str, bytes], **more: Any) -> tuple[MemoryBlobStore, Manifest]:
    """A bundle in a store."""
    blobs = MemoryBlobStore()
    manifest = Manifest({path: BundledFile(blob_id(data), len(data)) for path, data in files.items()}, **more)
    blobs.put({blob_id(data): data for data in (*files.values(), manifest.encode())})
    return blobs, manifest


def bytes_of(files: Mapping[str, bytes], **more: Any) -> bytes:
    return b"".join(sent(*packed(files, **more)))


names = st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=5), min_size=1, max_size=3)


@given(st.dictionaries(names.map("/".join), st.binary(max_size=50), max_size=5))
def test_what_is_sent_is_what_is_stored(files: dict[str, bytes]) -> None:
    data = bytes_of(files)
    assert read_sent(io.BytesIO(data)).files.keys() == files.keys()
    blobs = MemoryBlobStore()
    manifest = store_sent(io.BytesIO(data), blobs)
    assert read_manifest(blobs, manifest.bundle) == manifest
    assert {path: blobs.get(file.blob) for path, file in manifest.files.items()} == files


def test_more_than_is_stored_at_a_time_arrives() -> None:
    files = {f"f{number}.py": bytes([number]) * (3 << 20) for number in range(7)}
    blobs, data = MemoryBlobStore(), bytes_of(files)
    manifest = store_sent(io.BytesIO(data), blobs)
    assert set(blobs.blob_ids()) == {*manifest.blobs, manifest.bundle}


@given(st.data())
def test_a_changed_byte_or_a_cut_is_found(data: st.DataObject) -> None:
    whole = bytes_of(FILES)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    for damaged in (whole[:at], changed):
        try:
            found = read_sent(io.BytesIO(damaged))
        except (InvalidInput, UnsupportedFormat):
            continue
        assert found != packed(FILES)[1], "only another manifest that is one, such as with another name of a file"


def described(**more: Any) -> bytes:
    """The bytes of a manifest without contents, with other values than it may have."""
    return replace(packed({})[1], **more).encode() + b"\n"


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"", "is no code bundle: it does not begin with a manifest"),
        (b"x" * 100, "is no code bundle: it does not begin with a manifest"),
        (b"[]\n", "is no code bundle"),
        (b'{"format": 1}\n', "is no code bundle"),
        (b" " + bytes_of({}), "is not in canonical form"),
        (bytes_of(FILES) + b"x", "bytes after the end of the code bundle"),
        (bytes_of(FILES)[:-1], "the content of z.py in the code bundle was cut off"),
        (described(files={"../a": BundledFile(blob_id(b""), 0)}), "is no code bundle: .*'../a' cannot be the path"),
        (described(requirements=("git+https://example.org",)), "is no requirement"),
        (described(files={"a.py": BundledFile(blob_id(b""), MAX_FILE_BYTES + 1)}), "a.py has more than 8 MiB"),
        (described(files={"a.py": BundledFile(blob_id(b""), -1)}), "a.py has more than 8 MiB"),
        (
            described(files={"a.py": BundledFile(blob_id(b""), 0), "b.py": BundledFile(blob_id(b""), 1)}),
            "two sizes for the content of b.py",
        ),
        (
            described(
                files={
                    f"{number}.py": BundledFile(blob_id(bytes([number])), MAX_FILE_BYTES)
                    for number in range(MAX_BUNDLE_BYTES // MAX_FILE_BYTES + 1)
                }
            ),
            "larger than 64 MiB",
        ),
    ],
)
def test_what_is_no_bundle_is_refused(data: bytes, refusal: str) -> None:
    with pytest.raises(InvalidInput, match=refusal):
        read_sent(io.BytesIO(data))
