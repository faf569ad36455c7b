"""What a zygote keeps of its mounts, when they cannot be made."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, cast

import pytest

from chronicle.control.connections import Connection
from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import guard, mounts
from chronicle.fuse.mountpoints.claim import claim_mountpoint
from chronicle.fuse.poll_loop import PollLoop
from chronicle.fuse.server.request import Exit, MountRequest
from chronicle.fuse.zygote.mount_manager import MountManager
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.fuse.zygote.processes import ServerProcess, ServerProcesses


class Servers:
    """Servers that are nowhere; from the second on they are gone at once, as when no descriptors are left."""

    def __init__(self, *, fails: bool) -> None:
        self.started: list[ServerProcess] = []
        self._fails = fails

    def start(self, process: ServerProcess) -> None:
        self.started.append(process)
        if self._fails and len(self.started) > 1:
            process.on_message({"failed": {"type": "Unavailable", "message": "no mount server can be started"}})
            process.code = Exit.REFUSED
            process.on_exit()

    def cut(self, process: ServerProcess) -> None:
        process.code = Exit.CLOSED
        process.on_exit()


@pytest.fixture
def unmounted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Mount nothing, and say what would have been unmounted."""
    found: list[Path] = []
    monkeypatch.setattr(guard, "guard_mountpoint", lambda *_: None)
    monkeypatch.setattr(mounts, "detach", lambda _: None)
    monkeypatch.setattr(mounts, "unmount", found.append)
    return found


@pytest.mark.usefixtures("caplog")
@pytest.mark.parametrize("fails", ["guard", "server"])
def test_a_mount_that_follows_another_and_fails_at_once_is_let_go_of_once(
    tmp_path: Path, unmounted: list[Path], monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    servers = Servers(fails=fails == "server")
    emptied: list[bool] = []
    processes = cast("ServerProcesses", servers)
    manager = MountManager(PollLoop(), processes, tmp_path / "zygote.sock", lambda: emptied.append(True))
    ours, theirs = socket.socketpair()
    peer = Connection(ours)

    def order(epoch: int) -> None:
        spec = LayerSpec("w", tmp_path / "layers", None, epoch, 1)
        manager.mount(MountRequest(spec, "file:///blobs", tmp_path / "mnt"), peer, with_caller=False)

    order(1)
    servers.started[0].on_message({"up": {"base": ["a", "b"], "recovered": None}})
    if fails == "guard":

        def refuse(*_: object) -> None:
            raise Unavailable("the kernel refused")

        monkeypatch.setattr(guard, "guard_mountpoint", refuse)
    order(2)
    assert unmounted == [tmp_path / "mnt"]
    assert manager.is_empty()
    assert emptied
    claim_mountpoint(tmp_path / "mnt").close()
    peer.close()
    theirs.close()
