"""A bundle as bytes, for a home that is reached through a gateway.

They are the manifest, which is a line of canonical JSON, a newline, and then the content of each blob of the files,
once, in the order in which the manifest first names them. What is received is checked as a whole before any of it is
stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.blobs.ident import blob_id
from chronicle.errors import Corrupt, InvalidInput
from podium.code.manifest import manifest_of
from podium.code.packing import MAX_BUNDLE_BYTES, MAX_FILE_BYTES, MAX_FILES
from podium.code.requirements import parse_requirement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import BlobId
    from podium.code.manifest import Manifest

__all__ = ["MAX_SENT_BYTES", "MEDIA_TYPE", "read_sent", "sent", "store_sent"]

MEDIA_TYPE: Final = "application/vnd.podium.code"
_MAX_MANIFEST_BYTES: Final = 8 << 20
"""800 bytes for each of the files, and as much for the configuration of the classes."""
MAX_SENT_BYTES: Final = _MAX_MANIFEST_BYTES + 1 + MAX_BUNDLE_BYTES
_BATCH_BYTES: Final = 8 << 20
"""Content that is stored at a time."""


def sent(blobs: BlobReader, manifest: Manifest) -> Iterator[bytes]:
    """Yield the bytes of a bundle.

    Raises:
        NotFound, Corrupt, Unavailable: a blob cannot be read.
    """
    line = manifest.encode()
    yield line + b"\n"
    for each in manifest_of(line).blobs:  # in the order of the canonical form
        yield blobs.get(each)


def read_sent(file: BinaryIO) -> Manifest:
    """Return the manifest of a bundle that was received; all of the file is checked.

    Args:
        file: at its beginning.

    Raises:
        InvalidInput: it is no bundle, a damaged one, or a larger one than may be.
        UnsupportedFormat: a newer version packed it.
    """
    line = file.readline(_MAX_MANIFEST_BYTES + 1)
    if not line.endswith(b"\n"):
        raise InvalidInput("what was sent is no code bundle: it does not begin with a manifest and a newline")
    try:
        manifest = manifest_of(line[:-1])
    except Corrupt as error:
        raise InvalidInput(f"what was sent is no code bundle: {error}") from error
    if manifest.encode() != line[:-1]:
        raise InvalidInput("the manifest of the code bundle is not in canonical form: send what podium deploy packs")
    sizes: dict[BlobId, int] = {}
    for path, described in manifest.files.items():
        if not 0 <= described.size_bytes <= MAX_FILE_BYTES:
            raise InvalidInput(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB, the limit of a file of a code bundle")
        if sizes.setdefault(described.blob, described.size_bytes) != described.size_bytes:
            raise InvalidInput(f"the manifest of the code bundle has two sizes for the content of {path}")
    if len(manifest.files) > MAX_FILES or sum(each.size_bytes for each in manifest.files.values()) > MAX_BUNDLE_BYTES:
        raise InvalidInput(
            f"the code bundle is larger than {MAX_BUNDLE_BYTES >> 20} MiB in {MAX_FILES} files, the limit of one"
        )
    for text in manifest.requirements:
        parse_requirement(text)
    for each, size_bytes in sizes.items():
        if blob_id(file.read(size_bytes)) != each:
            path = next(path for path, described in manifest.files.items() if described.blob == each)
            raise InvalidInput(f"the content of {path} in the code bundle was cut off, or changed on its way")
    if file.read(1):
        raise InvalidInput("there are bytes after the end of the code bundle")
    return manifest


def store_sent(file: BinaryIO, blobs: BlobStore) -> Manifest:
    """Put a bundle that was received and checked into a blob store, durably.

    Args:
        file: as of `read_sent`, at its beginning.

    Raises:
        Unavailable: the blob store could not be reached.
    """
    manifest = manifest_of(line := file.readline()[:-1])
    batch: dict[BlobId, bytes] = {}
    left = _BATCH_BYTES
    sizes = {described.blob: described.size_bytes for described in manifest.files.values()}
    for each in manifest.blobs:
        batch[each] = file.read(sizes[each])
        left -= sizes[each]
        if left <= 0:
            blobs.put(batch)
            batch, left = {}, _BATCH_BYTES
    blobs.put({**batch, manifest.bundle: line})
    return manifest
