"""What the system shows of the processes that serve mounts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.zygote import launcher
from tests.fuse.command import Command, running_command
from tests.fuse.conftest import prefork_process_of, served

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def chronicle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield from running_command(tmp_path, capsys)


def test_the_processes_of_a_mount_say_what_they_are_and_whose(chronicle: Command) -> None:
    chronicle.mount()
    socket = chronicle.store / "run" / "zygote.sock"
    pid = launcher.is_running(socket)
    assert pid is not None
    (mount,) = served(socket)
    for process in (pid, prefork_process_of(pid), int(str(mount["pid"]))):
        assert Path(f"/proc/{process}/comm").read_text() == "chronicle mount\n"
        arguments = Path(f"/proc/{process}/cmdline").read_text().split("\0")
        code = arguments[arguments.index("-c") + 1]
        assert code.startswith("'chronicle mount service'; ")
        assert arguments[arguments.index("--socket") + 1] == str(socket)
