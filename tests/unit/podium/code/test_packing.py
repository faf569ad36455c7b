"""Bundles: the same files give the same bundle, and what may be in one."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.ident import blob_id
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.canonical import decode, encode
from chronicle.errors import Corrupt, InvalidInput, NotFound, UnsupportedFormat
from podium.code.manifest import (
    BundledFile,
    Manifest,
    check_path,
    manifest_of,
    podium_version,
    python_version,
    read_manifest,
)
from podium.code.packing import MAX_BUNDLE_BYTES, MAX_FILE_BYTES, pack

if TYPE_CHECKING:
    from pathlib import Path


CLASSES: list[dict[str, Any]] = [{"agent_type": "hello", "file": "agent.py", "class": "Hello"}]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's directory."""
    directory = tmp_path / "project"
    (directory / "words").mkdir(parents=True)
    (directory / "agent.py").write_text("import words.greeting\n")
    (directory / "words" / "greeting.py").write_text("WORD = 'hello'\n")
    (directory / "words" / "copy.py").write_text("WORD = 'hello'\n")
    return directory


def packed(blobs: MemoryBlobStore, directory: Path, *requirements: str) -> Manifest:
    """A bundle of all files."""
    return pack(blobs, directory, directory.rglob("*.py"), CLASSES, requirements)


def test_equal_code_is_one_bundle(project: Path, tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    made = packed(blobs, project, "b", "a>=1")
    manifest = decode(blobs.get(made.bundle))
    assert manifest == {
        "format": 1,
        "files": {
            "agent.py": {"blob": blob_id(b"import words.greeting\n"), "size": 22},
            "words/copy.py": {"blob": blob_id(b"WORD = 'hello'\n"), "size": 15},
            "words/greeting.py": {"blob": blob_id(b"WORD = 'hello'\n"), "size": 15},
        },
        "classes": CLASSES,
        "requirements": ["a>=1", "b"],
        "python": python_version(),
        "podium": podium_version(),
        "ray": version("ray"),
    }
    assert len(made.blobs) == 2, "equal files are one blob"
    assert [blobs.get(blob) for blob in made.blobs] == [b"import words.greeting\n", b"WORD = 'hello'\n"]
    assert read_manifest(blobs, made.bundle) == made

    moved = tmp_path / "elsewhere"
    shutil.copytree(project, moved)
    os.utime(moved / "agent.py", (1, 1))
    (moved / "agent.py").chmod(0o700)
    assert packed(MemoryBlobStore(), moved, "a>=1", "b", "b").bundle == made.bundle, "only contents and paths count"

    bundles = {made.bundle, packed(blobs, project, "a>=2").bundle}
    (moved / "agent.py").write_text("import words.copy\n")
    bundles.add(packed(blobs, moved, "b", "a>=1").bundle)
    (project / "agent.py").rename(project / "other.py")
    bundles.add(packed(blobs, project, "b", "a>=1").bundle)
    assert len(bundles) == 4


def test_the_id_of_a_bundle_stays_the_same() -> None:
    files = {"agent.py": BundledFile(blob_id(b"x = 1\n"), 6)}
    manifest = Manifest(files, CLASSES, ("httpx>=0.28",), python="3.12", podium="0.1.0", ray=None)
    assert manifest.bundle == "5eb029d6f0f09d22d3336e1df7ea6158e6f720672e0fcd3598c84c89a8cc3d01", "format 1"
    assert manifest_of(manifest.encode()) == manifest


def test_files_outside_of_the_project_are_refused(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "library.py"
    outside.write_text("")
    for path in (outside, project / ".." / "library.py"):
        with pytest.raises(InvalidInput, match=r"library.py is outside of .*/project, .*name it in requirements"):
            pack(MemoryBlobStore(), project, [path], CLASSES)


def test_symbolic_links_and_special_files_are_refused(project: Path, tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    secret = tmp_path / "secret"
    secret.write_text("key")
    (project / "link.py").symlink_to(secret)
    with pytest.raises(InvalidInput, match=r"/project/link.py is a symbolic link"):
        pack(blobs, project, [project / "link.py"], CLASSES)
    (project / "away").symlink_to(tmp_path)
    with pytest.raises(InvalidInput, match=r"/project/away is a symbolic link"):
        pack(blobs, project, [project / "away" / "secret"], CLASSES)
    os.mkfifo(project / "pipe.py")
    with pytest.raises(InvalidInput, match=r"/project/pipe.py is no regular file"):
        pack(blobs, project, [project / "pipe.py"], CLASSES)
    with pytest.raises(InvalidInput, match=r"/project/gone.py cannot be read: No such file"):
        pack(blobs, project, [project / "gone.py"], CLASSES)
    assert list(blobs.blob_ids()) == [], "nothing was stored"

    linked = tmp_path / "linked"
    linked.symlink_to(project)
    assert pack(blobs, linked, [linked / "agent.py"], CLASSES).files.keys() == {"agent.py"}, "the project may be at one"


def test_huge_files_are_refused(project: Path) -> None:
    blobs = MemoryBlobStore()
    with (project / "data.py").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(InvalidInput, match="/project/data.py is larger than 8 MiB"):
        packed(blobs, project)
    (project / "data.py").unlink()
    parts = [project / f"part{number}.py" for number in range(MAX_BUNDLE_BYTES // MAX_FILE_BYTES + 1)]
    for part in parts:
        with part.open("wb") as file:
            file.truncate(MAX_FILE_BYTES)
    with pytest.raises(InvalidInput, match="/project is larger than a bundle may be .64 MiB"):
        packed(blobs, project)
    assert list(blobs.blob_ids()) == []


@pytest.mark.parametrize("path", ["", ".", "/etc/passwd", "../up.py", "a/../../up.py", "a/..", "a//b", "./a", "a\0"])
def test_a_manifest_names_no_paths_outside(path: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the path of a bundle's file"):
        check_path(path)
    blobs = MemoryBlobStore()
    manifest = {"format": 1, "files": {path: {"blob": blob_id(b""), "size": 0}}, "classes": [], "requirements": []}
    data = encode({**manifest, "python": "3.11", "podium": "1"})
    blobs.put({blob_id(data): data})
    with pytest.raises(Corrupt, match="has no manifest that can be read"):
        read_manifest(blobs, blob_id(data))


def test_what_is_no_manifest_is_refused() -> None:
    blobs = MemoryBlobStore()
    with pytest.raises(NotFound):
        read_manifest(blobs, blob_id(b""))
    file = encode({"format": 1, "files": {"a": {"blob": "..", "size": 1}}})
    for data in (b"no JSON", b"[]", b"{}", encode({"format": 1}), file):
        blobs.put({blob_id(data): data})
        with pytest.raises(Corrupt, match="has no manifest that can be read"):
            read_manifest(blobs, blob_id(data))
    newer = encode({"format": 2})
    blobs.put({blob_id(newer): newer})
    with pytest.raises(UnsupportedFormat, match="has the format 2, and this podium reads 1"):
        read_manifest(blobs, blob_id(newer))
