"""The id of a blob: the BLAKE3 of its bytes, as hex for people and ports, as 32 raw bytes inside formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.errors import InvalidInput
from chronicle.ids import BlobId

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RAW_ID_BYTES", "blob_id", "check_ids", "from_raw", "to_raw"]

RAW_ID_BYTES: Final = 32
"""The length of a raw id: 256 bits."""


def blob_id(data: bytes | bytearray | memoryview) -> BlobId:
    """Return the id of some bytes: 64 lower-case hex digits."""
    return BlobId(blake3(data).hexdigest())


def to_raw(identifier: BlobId) -> bytes:
    """Return an id as the 32 bytes used in formats.

    Raises:
        InvalidInput: the id is not 64 hex digits.
    """
    try:
        raw = bytes.fromhex(identifier)
    except ValueError:
        raw = b""
    if len(raw) != RAW_ID_BYTES:
        raise InvalidInput(f"{identifier!r} is not a blob id; one is 64 hex digits")
    return raw


def from_raw(raw: bytes) -> BlobId:
    """Return the id of 32 raw bytes."""
    return BlobId(raw.hex())


def check_ids(blobs: Mapping[BlobId, bytes]) -> None:
    """Check that each blob has the id given as its key.

    Raises:
        InvalidInput: a blob has another id; the message names it.
    """
    for identifier, data in blobs.items():
        actual = blob_id(data)
        if actual != identifier:
            raise InvalidInput(f"blob {identifier} has the id {actual}; name a blob by the BLAKE3 of its bytes")
