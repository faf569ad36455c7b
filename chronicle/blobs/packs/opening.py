"""Opens a store's URL: its objects, the catalog of its packs, and its cache on this node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from chronicle.blobs.cache import BlobCache, cache_from
from chronicle.blobs.media.objects import CreatingObjects, LocalObjects
from chronicle.blobs.packs.linked_catalog import LinkedCatalog
from chronicle.blobs.packs.local_catalog import LocalCatalog
from chronicle.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chronicle.blobs.packs.catalog import Catalog

__all__ = ["open_medium", "open_objects"]

_LOCAL: Final = "file://"
"""Resolved at import, before mount servers fork: the first run of fsspec's path resolution in a mount server would take
a quarter of a megabyte of its private memory."""


def open_medium(
    url: str,
    new_name: Callable[[], str],
    options: Mapping[str, Any] | None = None,
    cache: BlobCache | Literal["node"] | None = None,
) -> tuple[LocalObjects | CreatingObjects, Catalog, BlobCache | None]:
    """Return the objects of a store, the catalog of its packs, and its cache.

    For the store itself and for gc.

    Raises:
        InvalidInput: the URL's protocol is not supported.
    """
    objects = open_objects(url, options)
    if isinstance(objects, LocalObjects):
        return objects, LocalCatalog(objects, new_name), None
    if not objects.is_far:
        cache = None
    elif cache == "node":
        cache = cache_from(read_settings())
    return objects, LinkedCatalog(objects, new_name, cache), cache


def open_objects(url: str, options: Mapping[str, Any] | None = None) -> LocalObjects | CreatingObjects:
    """Return the objects of a store.

    Raises:
        InvalidInput: the URL's protocol is not supported.
    """
    if url.startswith(_LOCAL):
        # A relative path is relative to the working directory.
        path = Path(url.removeprefix(_LOCAL))
        return LocalObjects(path if path.is_absolute() else path.expanduser().absolute())
    from chronicle.blobs.media.fsspec_objects import open_remote  # noqa: PLC0415 - a mount server on a local disk needs none

    return open_remote(url, options)
