"""Agents of homes that earlier versions wrote go on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.e2e.conftest import text_of
from tests.golden.homes import FILER, NAMES, extract

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Podium


@pytest.mark.parametrize("name", NAMES)
def test_agents_go_on(podium: Podium, name: str, tmp_path: Path) -> None:
    shutil.copytree(extract(name, tmp_path) / "home", podium.home)
    chat = podium.chat(FILER, "ann")
    assert text_of(chat.say("write notes/a.txt FOUR")) == "did write notes/a.txt FOUR"
    chat.say("move notes later")
    podium("run", FILER, "--key", "ben", "-m", "write moved/er/c.txt AGAIN")  # by the same service
    assert chat.close() == 0
    ann, ben = (podium.json("state", f"filer/{key}")["state"] for key in ("ann", "ben"))
    # Turn 9 went back to turn 3, turn 10 wrote after.txt.
    assert [(step["verb"], step["path"]) for step in ann["done"]] == [
        ("write", "notes/a.txt"),
        ("write", "notes/a.txt"),
        ("write", "deep/er/b.txt"),
        ("write", "after.txt"),
        ("write", "notes/a.txt"),
        ("move", "notes"),
    ]
    assert ben["done"][-1] == {"verb": "write", "path": "moved/er/c.txt"}
    assert podium("cat", "filer/ann", "later/a.txt").stdout == "FOUR\n"
    assert podium("cat", "filer/ann@2", "notes/a.txt").stdout == "TWO\n"
    assert podium("cat", "filer/ann@10", "after.txt").stdout == "REWOUND\n"
    assert podium("cat", "filer/ben@5", "moved/er/c.txt").stdout == "FORKED\n"
    assert podium("cat", "filer/ben", "moved/er/c.txt@2").stdout == "AGAIN\n"
    podium("verify")
