"""Brings a project's files into a directory: from a directory, a ``.tar.gz`` or a ``.whl``. Trusts none of them.

Names and sizes are looked at before anything is written, and the directory is changed only when all could be read: a
project that is refused leaves nothing behind. Links and special files are left out, so no path can lead out of the
directory; sizes and numbers are bounded.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILES = 20_000
MAX_BYTES = 200 * 1024 * 1024  # all files together, unpacked
NOT_SOURCE = frozenset({".git", ".hg", ".venv", "venv", "__pycache__", "node_modules", ".tox", ".mypy_cache"})

BROKEN_ARCHIVE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
)


class CannotReviewError(Exception):
    """The project cannot be brought in; the message says why and what would work."""


@dataclass
class Budget:
    """Counts what would be written, and refuses what is too much."""

    files: int = 0
    size: int = 0
    left_out: int = 0

    def add(self, name: str, size: int) -> None:
        self.files += 1
        self.size += size
        if self.files > MAX_FILES:
            raise CannotReviewError(f"it has more than {MAX_FILES:,} files; give me a part of it")
        if self.size > MAX_BYTES:
            raise CannotReviewError(
                f"it is larger than {MAX_BYTES >> 20} MiB (I stopped at {name}); give me a part of it"
            )


def bring_in(source: Path, target: Path) -> Budget:
    """Copy or unpack a project into ``target``, in place of what was there.

    Args:
        source: a directory, a tar archive (compressed or not), or a wheel or other zip archive.
        target: the directory to make.

    Returns:
        how many files and bytes were written, and how many links and special files were left out.

    Raises:
        CannotReviewError: nothing was changed.
    """
    with tempfile.TemporaryDirectory(prefix="reviewer-") as folder:
        budget = _read(source, Path(folder), target)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
    return budget


def _read(source: Path, into: Path, target: Path) -> Budget:
    """Copy or unpack into a directory that nobody else uses."""
    try:
        if source.is_dir():
            if target.resolve().is_relative_to(source.resolve()):
                raise CannotReviewError(f"{source} contains my own workspace; give me a directory below it")
            return _copy(source, into)
        if not source.is_file():
            raise CannotReviewError(f"there is no file or directory {source}; give me its absolute path")
        if zipfile.is_zipfile(source):
            return _unzip(source, into)
        if tarfile.is_tarfile(source):
            return _untar(source, into)
    except PermissionError as error:
        raise CannotReviewError(f"I may not read {error.filename}") from error
    except BROKEN_ARCHIVE as error:
        raise CannotReviewError(f"{source.name} is a damaged or unusual archive ({error})") from error
    raise CannotReviewError(f"{source.name} is no directory, .tar.gz or .whl")


def safe_path(name: str) -> PurePosixPath:
    """Return an archive member's name as a relative path that stays inside.

    Raises:
        CannotReviewError: it is absolute, or climbs out with ``..``.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name or (path.parts and path.parts[0].endswith(":")):
        raise CannotReviewError(f"the archive wants to write to {name!r}, outside of its own directory")
    return path


def _write(target: Path, path: PurePosixPath, data: bytes) -> None:
    file = target / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def _untar(source: Path, target: Path) -> Budget:
    budget = Budget()
    with tarfile.open(source) as archive:
        wanted: list[tuple[PurePosixPath, tarfile.TarInfo]] = []
        for member in archive:  # one by one, so that a bomb is refused before it is read to its end
            path = safe_path(member.name)
            if member.isreg():
                budget.add(member.name, member.size)
                wanted.append((path, member))
            elif not member.isdir():
                budget.left_out += 1
        for path, member in wanted:
            content = archive.extractfile(member)
            if content is not None:
                _write(target, path, content.read())
    return budget


def _unzip(source: Path, target: Path) -> Budget:
    budget = Budget()
    with zipfile.ZipFile(source) as archive:
        wanted: list[tuple[PurePosixPath, zipfile.ZipInfo]] = []
        for info in archive.infolist():
            path = safe_path(info.filename)
            if stat.S_ISLNK(info.external_attr >> 16):
                budget.left_out += 1
            elif not info.is_dir():
                budget.add(info.filename, info.file_size)
                wanted.append((path, info))
        if any(info.flag_bits & 1 for _, info in wanted):
            raise CannotReviewError(f"{source.name} is encrypted")
        for path, info in wanted:
            _write(target, path, archive.read(info))
    return budget


def _copy(source: Path, target: Path) -> Budget:
    budget = Budget()
    wanted: list[Path] = []
    for file in _files(source):
        info = file.lstat()
        if stat.S_ISREG(info.st_mode):
            budget.add(str(file), info.st_size)
            wanted.append(file)
        else:
            budget.left_out += 1
    for file in wanted:
        _write(target, PurePosixPath(file.relative_to(source)), file.read_bytes())
    return budget


def _files(directory: Path) -> Iterator[Path]:
    """Everything below that is no directory, in a fixed order; tools' own folders are passed by."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in NOT_SOURCE)
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name) for name in sorted([*names, *linked]))
