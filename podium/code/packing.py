"""Packing files into a bundle, which is durable in a blob store afterwards."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from chronicle.blobs.ident import blob_id
from chronicle.errors import InvalidInput
from podium.code.manifest import BundledFile, Manifest, check_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import JsonObject

__all__ = ["MAX_BUNDLE_BYTES", "MAX_FILES", "MAX_FILE_BYTES", "pack"]

MAX_FILE_BYTES: Final = 8 << 20
MAX_BUNDLE_BYTES: Final = 64 << 20
MAX_FILES: Final = 10_000
"""Limits of code. Each node that runs it has a copy, and data of this size belongs into workspaces or artifacts."""


def pack(
    blobs: BlobStore,
    directory: Path,
    paths: Iterable[Path],
    classes: Sequence[JsonObject],
    requirements: Iterable[str] = (),
) -> Manifest:
    """Put files into a blob store as a bundle, durably; the same files give the same bundle.

    Args:
        directory: the project's, absolute; the bundle has the paths below it.
        paths: absolute.

    Raises:
        InvalidInput: a file is outside of the directory, no regular file, or too large; the message names it.
        Unavailable: the blob store could not be reached.
    """
    files: dict[str, BundledFile] = {}
    contents = {}
    left = MAX_BUNDLE_BYTES
    for path in sorted(set(paths)):
        name = _name_in(directory, path)
        data = _read(directory, path)
        left -= len(data)
        if left < 0 or len(files) == MAX_FILES:
            raise InvalidInput(
                f"the code below {directory} is larger than a bundle may be ({MAX_BUNDLE_BYTES >> 20} MiB in "
                f"{MAX_FILES} files): keep data elsewhere, and install libraries on the nodes"
            )
        files[name] = BundledFile(blob_id(data), len(data))
        contents[files[name].blob] = data
    manifest = Manifest(files, classes, tuple(sorted(set(requirements))))
    contents[manifest.bundle] = manifest.encode()
    blobs.put(contents)
    return manifest


def _name_in(directory: Path, path: Path) -> str:
    if not path.is_relative_to(directory) or ".." in path.parts:
        raise InvalidInput(
            f"{path} is outside of {directory}, the directory of the project: a bundle has files of that directory "
            "only; move the file there, or install it on the nodes as a library and name it in requirements"
        )
    return check_path(path.relative_to(directory).as_posix())


def _read(directory: Path, path: Path) -> bytes:
    """Return the content of a file that no symbolic link leads to.

    Raises:
        InvalidInput: it cannot be read, or may not be in a bundle.
    """
    parents = (parent for parent in path.parents if parent != directory and parent.is_relative_to(directory))
    for each in (path, *parents):
        if each.is_symlink():
            raise InvalidInput(f"{each} is a symbolic link, which a bundle cannot have: put what it names there")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidInput(f"{path} is no regular file, and a bundle has no others")
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(
            f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB, the limit of a file of a bundle: keep data elsewhere"
        )
    return data
