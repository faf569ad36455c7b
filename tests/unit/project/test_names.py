"""Names that the project does not use, because it has another one for the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INSTEAD = {
    r"\b_?MOST(_[A-Z]|\b)": "MAX_",
    r"\b(def|class) _?(breathe|aside)\b": "yield_now, run_in_thread",
    r"\bdef (give_back_all|fill_holes)\b": "collect_and_trim, pack_heap_before_fork",
}


@pytest.mark.parametrize("package", ["chronicle", "podium", "coordinator", "tools", "tests"])
def test_one_name_for_one_thing(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()} (instead: {instead})"
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != Path(__file__) and "node_modules" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for name, instead in INSTEAD.items()
        if re.search(name, line)
    ]
    assert not found, "\n".join(found)
