"""What ``chronicle`` advises after an error, on stores that were never mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.cli import main
from chronicle.cli.exits import ExitCode
from chronicle.repository.repository import Repository

if TYPE_CHECKING:
    from pathlib import Path

PAGE_BYTES = 4096
"""Of SQLite, by default."""


@pytest.fixture
def store(tmp_path: Path) -> Repository:
    """A store with one commit."""
    repository = Repository(tmp_path / "store")
    with repository.used("main") as workspace:
        workspace.write("file", b"one")
    repository.commit("main", "first")
    return repository


def failed(capsys: pytest.CaptureFixture[str], code: int, *arguments: str | Path) -> str:
    """Run a command that fails, and return what it writes to stderr."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    return capsys.readouterr().err


def test_a_moment_before_the_first_commit(
    store: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = failed(capsys, ExitCode.NOT_FOUND, "checkout", f"{store.directory}@0", tmp_path / "out")
    assert said == (
        "chronicle: workspace 'main' had no files before its first commit; `chronicle log` lists its commits\n"
    )


def test_a_damaged_journal(store: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    journal = store.directory / "journal.db"
    data = bytearray(journal.read_bytes())
    for page in range(0, len(data), PAGE_BYTES):
        if b"first" in data[page : page + PAGE_BYTES]:  # the message of the commit
            data[page : page + PAGE_BYTES] = bytes(PAGE_BYTES)
    journal.write_bytes(data)
    said = failed(capsys, ExitCode.DAMAGED, "log", "--store", store.directory)
    assert said.startswith(f"chronicle: {journal} is damaged: ")
    assert said.endswith(f"; `chronicle verify` says what of {journal} can be read\n")
