"""What a command prints is written whole, or the command says so, with a buffer under stdout and without."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.cli_kit.stdout import whole_stdout
from coordinator.cli.exits import ExitCode

if TYPE_CHECKING:
    from typing import IO

COMMANDS = [Path(sys.executable).with_name(name) for name in ("podium", "chronicle")]
LIMIT_BYTES = 100


def run(command: Path, unbuffered: str, stdout: IO[bytes], limit: int | None = None) -> tuple[int, str]:
    """Let a command print its help; return its exit code and what it said."""

    def set_limit() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    ended = subprocess.run(
        [command, "--help"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=set_limit,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_write_that_writes_a_part_is_gone_on_with(command: Path, unbuffered: str, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        code, said = run(command, unbuffered, out, LIMIT_BYTES)
    assert (tmp_path / "out").stat().st_size == LIMIT_BYTES
    assert code == ExitCode.OS_ERROR
    assert said.splitlines() == [f"{command.name}: File too large"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_reader_that_left_is_no_complaint(command: Path, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        code, said = run(command, unbuffered, out)
    assert code in (ExitCode.OK, ExitCode.BROKEN_PIPE)
    assert not said


def test_stdout_is_what_it_was_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "out").open("wb", buffering=0) as raw:
        unbuffered = io.TextIOWrapper(raw, "utf-8", write_through=True)
        monkeypatch.setattr(sys, "stdout", unbuffered)
        with whole_stdout():
            assert sys.stdout is not unbuffered
            print("inside")
        assert sys.stdout is unbuffered
        print("outside")
        monkeypatch.undo()
        unbuffered.detach()
    assert (tmp_path / "out").read_text() == "inside\noutside\n"


def test_what_is_no_file_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = io.StringIO()
    monkeypatch.setattr(sys, "stdout", memory)
    with whole_stdout():
        assert sys.stdout is memory
        print("there")
    assert memory.getvalue() == "there\n"
