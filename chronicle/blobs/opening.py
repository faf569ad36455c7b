"""Opening a blob store by its URL: one that this process reaches itself, or one of another process of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.blobs.remote import SCHEME, RemoteBlobStore, calls_of

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobStore

__all__ = ["open_blobs"]


def open_blobs(url: str) -> BlobStore:
    """Open a blob store for use by agents' processes and mounts, with this node's cache.

    Args:
        url: as of `PackBlobStore`, or of `chronicle.blobs.remote.remote_url`.

    Raises:
        InvalidInput: the URL's protocol is not supported.
        UnsupportedFormat: a newer version made the store.
        Unavailable: it could not be reached.
    """
    return RemoteBlobStore(calls_of(url)) if url.startswith(SCHEME) else PackBlobStore(url)
