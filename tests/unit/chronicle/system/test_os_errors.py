"""What the operating system refused, as commands say it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from chronicle.system.atomic_files import replacing
from chronicle.system.os_errors import os_error_text
from coordinator.cli.exits import ExitCode
from tests.unit.coordinator.cli.cli_home import HomeMaker, Podium

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/a/b"), "/a/b: No such file or directory"),
        (PermissionError(errno.EACCES, "Permission denied", b"/a/\xff"), "/a/\udcff: Permission denied"),
        (OSError(errno.EXDEV, "Invalid cross-device link", "/a", None, "/b"), "/a and /b: Invalid cross-device link"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError(errno.EBADF, "Bad file descriptor", 7), "Bad file descriptor"),
        (OSError("of a library's own"), "of a library's own"),
    ],
)
def test_an_error_of_the_system_has_a_place_and_a_reason_and_no_number(error: OSError, text: str) -> None:
    assert os_error_text(error) == text


def test_a_file_that_is_not_whole_yet_is_not_named(tmp_path: Path) -> None:
    target = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as caught, replacing(target) as partial:
        partial.write_bytes(b"")
    assert os_error_text(caught.value) == f"{tmp_path / 'none'}: No such file or directory"


def test_an_export_into_a_directory_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = HomeMaker(tmp_path / "home")
    made.agent("counter/a").turn("one")
    podium = Podium(made.path, capsys)
    podium("export", "counter/a", str(tmp_path / "none" / "file"), code=ExitCode.OS_ERROR)
    assert podium.err == f"podium: {tmp_path / 'none'}: No such file or directory\n"
    made.close()
