"""Golden homes: homes and stores written by earlier versions, with what those versions said of them.

An archive ``NAME.tar.gz`` here holds ``home``, ``store`` and ``expected``, the JSON that the version which wrote them
printed. The home has two agents of `tests/golden/filer.py`. ``filer/ann`` wrote, moved and removed files in eight
turns, was rewound to turn 3 and went on; ``filer/ben`` was forked from it after turn 4. The store has a workspace of
three commits and a file that was not committed.

``histories-1`` was written when all formats were 1. `tests.golden.write` writes one.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, Final

__all__ = ["FILER", "NAMES", "expected", "extract"]

FILER: Final = f"{Path(__file__).with_name('filer.py')}:Filer"
NAMES: Final = sorted(path.name.partition(".")[0] for path in Path(__file__).parent.glob("*.tar.gz"))


def extract(name: str, into: Path) -> Path:
    """Write the files of a golden home into a directory, and return it."""
    with tarfile.open(Path(__file__).with_name(f"{name}.tar.gz")) as archive:
        archive.extractall(into, filter="fully_trusted")
    return into


def expected(files: Path, name: str) -> list[dict[str, Any]]:
    """Return the JSON objects that the version which wrote a golden home printed."""
    text = (files / "expected" / name).read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines()]
    return found[0] if len(found) == 1 and isinstance(found[0], list) else found
