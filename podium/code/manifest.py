"""The manifest of a bundle: the files of a project's agents, and what they need to run.

The content of a file is a blob. The manifest is canonical JSON and a blob, too, whose id is the id of the bundle. So
equal code is one bundle, whoever packs it, and files that two bundles share are stored once::

    {"format": 1, "files": {"agent.py": {"blob": "9f…", "size": 812}}, "classes": [{"file": "agent.py", …}],
     "requirements": ["httpx>=0.28"], "python": "3.12", "podium": "0.1.0", "ray": "2.60.0"}

What a class is, `coordinator.registry.registry` knows.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from chronicle.blobs.ident import blob_id, to_raw
from chronicle.canonical import decode, encode
from chronicle.errors import Corrupt, InvalidInput, UnsupportedFormat
from chronicle.ids import BlobId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.canonical import JsonObject

__all__ = [
    "BundledFile",
    "Manifest",
    "check_path",
    "manifest_of",
    "podium_version",
    "python_version",
    "ray_version",
    "read_manifest",
    "short_id",
]

_FORMAT: Final = 1
_SHORT: Final = 12


def python_version() -> str:
    """Return the version of this Python, as far as code depends on it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def podium_version() -> str:
    """Return the version of this Podium."""
    return version("podium")


def ray_version() -> str | None:
    """Return the version of the installed Ray; ``None`` if there is none."""
    try:
        return version("ray")
    except PackageNotFoundError:
        return None


def short_id(bundle: str) -> str:
    """Return the first 12 digits of a bundle's id, for people."""
    return bundle[:_SHORT]


@dataclass(frozen=True, slots=True)
class BundledFile:
    """The content of a file."""

    blob: BlobId
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A bundle."""

    files: Mapping[str, BundledFile]
    """By path, relative to the directory of the project, with ``/``."""
    classes: Sequence[JsonObject] = ()
    requirements: tuple[str, ...] = ()
    """Sorted; as of PEP 508."""
    python: str = field(default_factory=python_version)
    podium: str = field(default_factory=podium_version)
    ray: str | None = field(default_factory=ray_version)
    """``None`` if it is not known."""

    def encode(self) -> bytes:
        """Return it as canonical JSON."""
        files: JsonObject = {path: {"blob": file.blob, "size": file.size_bytes} for path, file in self.files.items()}
        return encode(
            {
                "format": _FORMAT,
                "files": files,
                "classes": list(self.classes),
                "requirements": list(self.requirements),
                "python": self.python,
                "podium": self.podium,
                **({"ray": self.ray} if self.ray is not None else {}),
            }
        )

    @property
    def bundle(self) -> BlobId:
        """The id of the bundle."""
        return blob_id(self.encode())

    @property
    def blobs(self) -> list[BlobId]:
        """The blobs of its files, each once."""
        return list(dict.fromkeys(file.blob for file in self.files.values()))


def check_path(path: str) -> str:
    """Return a path if it may be that of a bundle's file: relative, and nowhere outside of its directory.

    Raises:
        InvalidInput: it may not.
    """
    pure = PurePosixPath(path)
    if not path or "\0" in path or pure.is_absolute() or ".." in pure.parts or pure.as_posix() != path or path == ".":
        raise InvalidInput(f"{path!r} cannot be the path of a bundle's file: it must be relative, without '..'")
    return path


def read_manifest(blobs: BlobReader, bundle: BlobId) -> Manifest:
    """Return the manifest of a bundle.

    Raises:
        NotFound: there is no such bundle.
        Corrupt: it is damaged, or no manifest.
        UnsupportedFormat: a newer version packed it.
        Unavailable: the blob store could not be reached.
    """
    return manifest_of(blobs.get(bundle))


def manifest_of(data: bytes) -> Manifest:
    """Return the manifest that `Manifest.encode` wrote; raises as `read_manifest`."""
    bundle = blob_id(data)
    try:
        value: Any = decode(data)
        if value["format"] != _FORMAT:
            raise UnsupportedFormat(
                f"the code bundle {short_id(bundle)} has the format {value['format']}, and this podium reads "
                f"{_FORMAT}: install the version that packed it, or deploy again with this one"
            )
        return Manifest(
            {check_path(path): _file(found) for path, found in value["files"].items()},
            [_class(found) for found in value["classes"]],
            tuple(map(str, value["requirements"])),
            str(value["python"]),
            str(value["podium"]),
            str(value["ray"]) if "ray" in value else None,
        )
    except (InvalidInput, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(f"the code bundle {short_id(bundle)} has no manifest that can be read: {error}") from error


def _class(found: Any) -> JsonObject:
    if not isinstance(found, dict):
        raise TypeError("a class is no object")
    return found


def _file(found: dict[str, Any]) -> BundledFile:
    blob = BlobId(str(found["blob"]))
    to_raw(blob)
    return BundledFile(blob, int(found["size"]))
