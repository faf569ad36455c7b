"""Contents of directories and trees, and files to put into them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from chronicle.workspace.content import content
from chronicle.workspace.trees import tree

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.ids import BlobId

__all__ = ["Model", "files_below", "files_in", "fill", "spoil"]

Model = dict[str, "bytes | str | None"]
"""Path → a file's bytes, a symlink's target, or None for a directory, pipe, socket or device."""


def files_in(blobs: BlobStore, tree_id: BlobId) -> Model:
    """Return what a tree holds."""
    found: Model = {}
    for path, entry in tree.walk(blobs, tree_id):
        if entry.content is not None:
            found[os.fsdecode(path)] = content.read(blobs, entry.content)
        else:
            found[os.fsdecode(path)] = os.fsdecode(entry.target) if entry.target else None
    return found


def files_below(root: Path) -> Model:
    """Return what a directory holds. Nothing is opened that could block, or do something."""
    found: Model = {}
    for directory, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(directory, name)
            relative = os.path.relpath(path, root)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found[relative] = os.readlink(path)
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    found[relative] = file.read()
            else:
                found[relative] = None
    return found


def fill(root: Path) -> Model:
    """Put some of everything into a directory; return what it holds then."""
    (root / "a.txt").write_bytes(b"hello\n")
    (root / "empty").write_bytes(b"")
    (root / "d" / "e").mkdir(parents=True)
    (root / "hollow").mkdir()
    (root / "d" / "big").write_bytes(bytes(range(256)) * 1000)
    (root / "d" / "e" / "f").write_bytes(b"deep")
    (root / "link").symlink_to("d/e/f")
    (root / "dangling").symlink_to("nowhere")
    return {
        "a.txt": b"hello\n",
        "empty": b"",
        "d": None,
        "d/e": None,
        "hollow": None,
        "d/big": bytes(range(256)) * 1000,
        "d/e/f": b"deep",
        "link": "d/e/f",
        "dangling": "nowhere",
    }


def spoil(root: Path) -> None:
    """Change what `fill` made in every way there is."""
    (root / "a.txt").write_bytes(b"HELLO\n")
    os.utime(root / "a.txt", ns=(1, 1))
    (root / "empty").chmod(0o400)
    with (root / "d" / "big").open("r+b") as file:
        file.seek(100_000)
        file.write(b"changed")
    (root / "d" / "e").rename(root / "moved")
    (root / "hollow").rmdir()
    (root / "hollow").write_bytes(b"a file now")
    (root / "link").unlink()
    (root / "dangling").unlink()
    (root / "dangling").symlink_to("elsewhere")
    (root / "new").mkdir()
    (root / "new" / "file").write_bytes(b"new")
