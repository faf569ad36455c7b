"""`RemoteBlobStore`: a blob store that another process of this node has, with the credentials for it.

What is in the node's cache is read from there, but for keys of packs; the rest, and all that is put, goes through the
process, whose id of a blob is the right to read it: nobody guesses one.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from cachetools import LRUCache

from chronicle.blobs import ident
from chronicle.blobs.cache import cache_from
from chronicle.blobs.packs.linked_catalog import key_name
from chronicle.control.calls import Calls
from chronicle.control.messages import Ended
from chronicle.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from chronicle.ids import BlobId

__all__ = ["SCHEME", "RemoteBlobStore", "calls_of", "remote_url"]

SCHEME: Final = "store://"
_KEPT_BYTES: Final = 4 * 1024 * 1024
_MAX_KEPT: Final = 64 * 1024
"""A larger blob is not kept in memory."""
_AGAIN_S: Final = 0.1
"""Pause before a process that is not there is called again."""
_PUT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of one request; a larger put is several packs, of which each is whole."""


def remote_url(socket: Path, hello: Mapping[str, str]) -> str:
    """Return the URL of a server's blob store, for `chronicle.blobs.opening.open_blobs`."""
    return f"{SCHEME}{quote(str(socket))}?{urlencode(hello)}"


def calls_of(url: str) -> Calls:
    """Return the calls of the server that a URL names."""
    path, _, query = url.removeprefix(SCHEME).partition("?")
    return Calls(Path(unquote(path)), dict(parse_qsl(query)))


class RemoteBlobStore:
    """A `chronicle.blobs.port.BlobStore`. Safe to share between threads.

    Args:
        calls: of the server, which are closed with it.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        settings = read_settings()
        self._disk = cache_from(settings)
        self._patience_s = settings.store_patience_s
        self._kept: LRUCache[BlobId, bytes] = LRUCache(_KEPT_BYTES, len)
        self._guard = threading.Lock()

    @property
    def is_far(self) -> bool:
        """Whether reads cross a network."""
        return bool(self._calls.greeting["is_far"])

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see the port.

        A pack's key is asked for even if it is here: the process learns from it what the next put follows.
        """
        if self._disk is not None and self._disk.has_part(key_name(ident.to_raw(blob_id))):
            return self._ask([blob_id])[blob_id]
        return self.get_many([blob_id])[blob_id]

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of blobs, each as `get` does."""
        found = self.get_here(blob_ids)
        lacking = [blob_id for blob_id in dict.fromkeys(blob_ids) if blob_id not in found]
        while lacking:
            found |= (part := self._ask(lacking))
            lacking = [blob_id for blob_id in lacking if blob_id not in part]
        return found

    def get_here(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of those blobs that are in memory or in this node's cache."""
        found: dict[BlobId, bytes] = {}
        for blob_id in blob_ids:
            with self._guard:
                data = self._kept.get(blob_id)
            if data is None and self._disk is not None:
                data = self._disk.get(ident.to_raw(blob_id))
                if data is not None:
                    self._keep({blob_id: data})
            if data is not None:
                found[blob_id] = data
        return found

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store blobs, durable on return; see the port. A very large put is several packs."""
        part: dict[BlobId, bytes] = {}
        size = 0
        for blob_id, data in blobs.items():
            if part and size + len(data) > _PUT_BYTES:
                self._call("put", blobs=part)
                part, size = {}, 0
            part[blob_id] = data
            size += len(data)
        if part:
            self._call("put", blobs=part)
        self._keep(blobs)

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return the ids that the store does not have."""
        return set(self._call("missing", ids=list(blob_ids)))

    def sizes(self, blob_ids: Iterable[BlobId]) -> dict[BlobId, int]:
        """Return the sizes, before compression, of those blobs that the store has."""
        found: dict[BlobId, int] = self._call("sizes", ids=list(blob_ids))
        return found

    def blob_ids(self) -> Iterator[BlobId]:
        """Refuse: ids are rights.

        Raises:
            InvalidInput: always, by the server.
        """
        refused: Any = self._call("blob_ids")
        yield from refused

    def drop_cached(self) -> None:
        """Drop the cache in memory; the cache on this node's disk stays."""
        with self._guard:
            self._kept.clear()

    def close(self) -> None:
        """Close the connections."""
        self.drop_cached()
        self._calls.close()

    def _call(self, op: str, **arguments: object) -> Any:
        """Make a call, all of which may be repeated; wait for a process that is not there, as for a far store."""
        until_s = time.monotonic() + self._patience_s
        while True:
            try:
                return self._calls.call(op, **arguments)
            except Ended:
                if time.monotonic() > until_s:
                    raise
                time.sleep(_AGAIN_S)

    def _ask(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the first ones of some blobs, from the process."""
        part: dict[BlobId, bytes] = self._call("get", ids=blob_ids)
        ident.check_ids(part)
        self._keep(part)
        return part

    def _keep(self, blobs: Mapping[BlobId, bytes]) -> None:
        with self._guard:
            for blob_id, data in blobs.items():
                if len(data) <= _MAX_KEPT:
                    self._kept[blob_id] = data
