"""The commands that read, on homes that cannot be written, and on such in which nothing ever ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.home import Home
from tests.unit.coordinator.cli.cli_home import HomeMaker
from tests.unit.read_only import listing, without_write_access

if TYPE_CHECKING:
    from pathlib import Path

READING: Final = [
    ["ps"],
    ["log", "counter/a"],
    ["state", "counter/a@1"],
    ["history", "counter/a", "out.txt"],
    ["cat", "counter/a", "out.txt@1"],
    ["diff", "counter/a@1", "counter/a"],
    ["verify"],
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with an agent and its files, at rest."""
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("counter/a")
    agent.turn("one", {"out.txt": b"first\n"})
    agent.turn("two", {"out.txt": b"second\n", "big": bytes(range(256)) * 1000})
    agent.sleep()
    maker.close()
    return maker.path


def run_all(home: Path) -> None:
    """Run each command that reads."""
    for arguments in READING:
        assert main([*arguments, "--home", str(home)]) == ExitCode.OK, arguments


def test_reading_leaves_no_trace(home: Path) -> None:
    before = listing(home)
    run_all(home)
    assert listing(home) == before


def test_a_home_that_cannot_be_written_is_read(home: Path) -> None:
    before = listing(home)
    without_write_access(home, lambda: run_all(home))
    assert listing(home) == before


def test_a_home_that_is_in_use_is_read_by_who_may_not_write(tmp_path: Path) -> None:
    maker = HomeMaker(tmp_path / "home")
    agent = maker.agent("counter/a")
    agent.turn("one", {"out.txt": b"first\n"})
    agent.turn("two", {"out.txt": b"second\n"})
    without_write_access(maker.path, lambda: run_all(maker.path))
    maker.close()


def test_a_damaged_home_that_cannot_be_written_is_reported(home: Path) -> None:
    pack = next(path for path in sorted((home / "blobs" / "packs").rglob("*")) if path.is_file())
    data = bytearray(pack.read_bytes())
    data[12] ^= 1
    pack.write_bytes(data)

    def verify() -> None:
        assert main(["verify", "--home", str(home)]) == ExitCode.DAMAGED

    without_write_access(home, verify)


@pytest.mark.parametrize("arguments", READING, ids=lambda arguments: arguments[0])
def test_a_home_in_which_nothing_ran(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Home(tmp_path / "home").create()
    before = listing(home.path)
    assert main([*arguments, "--home", str(home.path)]) == ExitCode.HOME_ERROR
    assert "no agent has run in the home" in capsys.readouterr().err
    assert listing(home.path) == before
