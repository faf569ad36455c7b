"""Bundles on a node: files that hosts import, each bundle in a directory of its own that is named by the bundle.

Hosts unpack what they need, several at a time and without a word to each other: each file is checked by its hash and
replaced in one step if it is another one, so all of them write the same. A host holds a lock on its bundle's directory
while it lives; of the directories that nobody holds, the latest are kept.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.blobs.ident import blob_id
from chronicle.blobs.port import get_many
from chronicle.errors import StorageRefused
from chronicle.system.atomic_files import replacing
from chronicle.system.locks import lock, try_lock
from podium.code.manifest import read_manifest, short_id
from podium.code.requirements import check_fits

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from podium.code.manifest import BundledFile, Manifest

__all__ = ["BundleCache"]

_UNUSED_KEPT: Final = 4
"""Directories of bundles that no host uses: those of the agents that sleep, of the deploy before, of other types."""


class BundleCache:
    """The bundles of a node.

    Args:
        directory: of the node, for its user only; created when it is needed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def unpack(self, blobs: BlobReader, bundle: BlobId) -> Path:
        """Return the directory of a bundle's files, which is this process's to read until it ends.

        Raises:
            BundleRefused: the bundle does not fit this node.
            NotFound: there is no such bundle any more.
            Corrupt: it is damaged.
            Unavailable: the blob store could not be reached, or the files cannot be written.
        """
        manifest = read_manifest(blobs, bundle)
        check_fits(manifest)
        place = self._directory / bundle
        try:
            _hold(place)
            _write(place, manifest, blobs)
            os.utime(place)
            self._remove_unused()
        except OSError as error:
            raise StorageRefused(f"the code bundle {short_id(bundle)} cannot be kept in {place}: {error}") from error
        return place

    def _remove_unused(self) -> None:
        """Remove the directories that nobody holds, but for the latest ones."""
        with contextlib.suppress(FileNotFoundError):  # another process removes them, too
            unused = [(each.stat().st_mtime_ns, each) for each in self._directory.iterdir() if not _is_held(each)]
            for _, place in sorted(unused)[:-_UNUSED_KEPT]:
                descriptor = _opened(place)
                try:
                    if try_lock(descriptor):
                        shutil.rmtree(place)
                finally:
                    os.close(descriptor)


def _hold(place: Path) -> None:
    """Make a directory if there is none, and hold it until this process ends."""
    while True:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            descriptor = _opened(place)
        except FileNotFoundError:  # removed meanwhile
            continue
        lock(descriptor, shared=True)
        with contextlib.suppress(FileNotFoundError):
            if place.stat().st_ino == os.fstat(descriptor).st_ino:
                return
        os.close(descriptor)


def _is_held(place: Path) -> bool:
    descriptor = _opened(place)
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def _opened(place: Path) -> int:
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _write(place: Path, manifest: Manifest, blobs: BlobReader) -> None:
    """Write the files of a bundle that are missing, or have another content."""
    missing = {path: file for path, file in manifest.files.items() if not _has(place / path, file)}
    contents = get_many(blobs, list(dict.fromkeys(file.blob for file in missing.values())))
    for path, file in missing.items():
        (place / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(place / path) as new:
            new.write_bytes(contents[file.blob])


def _has(path: Path, file: BundledFile) -> bool:
    try:
        return not path.is_symlink() and blob_id(path.read_bytes()) == file.blob
    except (FileNotFoundError, NotADirectoryError):
        return False
