"""The ``chronicle`` command on a store of a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from chronicle.cli import main
from chronicle.fuse.zygote import launcher
from tests.fuse.conftest import end_service, wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


class Command:
    """Runs the command in this process, on one store."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.store = directory / "store"
        self.mountpoint = directory / "mnt"
        self._capture = capture

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        """What it writes to stdout, or to stderr if it is to fail."""
        self._capture.readouterr()
        found = main([str(argument) for argument in arguments])
        captured = self._capture.readouterr()
        assert found == code, captured.err
        self.said = captured.err
        return captured.out if code == 0 else captured.err

    def on_store(self, *arguments: str | Path, code: int = 0) -> str:
        return self(*arguments, "--store", self.store, code=code)

    def json(self, *arguments: str | Path) -> Any:
        return json.loads(self.on_store(*arguments, "--json"))

    def mount(self, *options: str) -> Path:
        self("mount", self.store, self.mountpoint, *options)
        return self.mountpoint

    def unmount(self) -> None:
        """Unmount the one workspace, and wait for the process that served it."""
        pid = launcher.is_running(self.store / "run" / "zygote.sock")
        self("unmount", self.mountpoint)
        assert pid is not None
        wait_for_end(pid)


def running_command(directory: Path, capture: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Yield a command, and end what it started. For a fixture."""
    command = Command(directory, capture)
    yield command
    end_service(command.store / "run" / "zygote.sock", directory)
