"""``.chronicle/turn`` and ``diff``: the time before the first commit, and turns backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuse.command import Command, running_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


def _turns(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".chronicle" / "turn").iterdir())


def test_before_the_first_commit_there_was_nothing(chronicle: Command) -> None:
    root = chronicle.mount()
    (root / "a").write_text("one\n")
    turn, diff = root / ".chronicle" / "turn", root / ".chronicle" / "diff"
    assert _turns(root) == ["0"]
    assert list((turn / "0").iterdir()) == []
    assert not (turn / "1").exists()
    assert (diff / "0..0").read_text() == ""
    assert not (diff / "0..1").exists()
    chronicle.on_store("commit", "-m", "first")
    (root / "a").write_text("two\n")
    chronicle.on_store("commit", "-m", "second")
    assert _turns(root) == ["0", "1", "2"]
    assert list((turn / "0").iterdir()) == []
    assert not (turn / "0" / "a").exists()
    assert [(turn / number / "a").read_text() for number in "12"] == ["one\n", "two\n"]
    for before, after in (("0", "2"), ("2", "1"), ("1", "2"), ("2", "0")):
        expected = chronicle.on_store("diff", before, after)
        assert "-" in expected
        assert (diff / f"{before}..{after}").read_text() == expected
    assert not (diff / "0..3").exists()
    assert not (turn / "3").exists()
