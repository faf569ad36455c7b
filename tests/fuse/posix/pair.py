"""A mount and a native directory side by side, on which users make the same calls and must get the same answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronicle.fuse.mountpoints import mounts
from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec
from tests.leftovers import new_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.workspace.port import Workspace

CHECKOUT = Path(__file__).parents[3]


class User:
    """Someone with ids, and two processes of theirs: one for each side, so that what they hold is apart."""

    def __init__(self, uid: int, gid: int, *groups: int) -> None:
        self.ids = [str(number) for number in (uid, gid, *groups)]
        self._processes: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.fuse.caller", *self.ids]
        for _ in range(2):
            process = subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._processes.append(process)
        for process in self._processes:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())[0] == "ready"

    def ask(self, side: int, call: list[Any]) -> Any:
        """Make a call on one side; ``["ok", value]`` or ``["errno", name]``."""
        process = self._processes[side]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(call) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.wait(30)
            process.stdout.close()


class Pair:
    """The two sides: 0 is the mount, 1 is native. Their root is ``@`` in what calls are given."""

    def __init__(self, directory: Path, workspace: Workspace, transport: Transport) -> None:
        self.workspace = workspace
        self.transport = transport
        self.native = directory / "native"
        self.roots = [os.fspath(workspace.root), os.fspath(self.native)]
        self.users: list[User] = []

    def user(self, uid: int, gid: int, *groups: int) -> User:
        """Start someone."""
        user = User(uid, gid, *groups)
        self.users.append(user)
        user.start()
        return user

    def dismiss(self, user: User) -> None:
        """End someone."""
        self.users.remove(user)
        user.end()

    def ask(self, side: int, user: User, name: str, *arguments: Any) -> Any:
        """Make a call on one side only."""
        root = self.roots[side]
        given = [root + value[1:] if isinstance(value, str) and value[:1] == "@" else value for value in arguments]
        return user.ask(side, [name, *given])

    def both(self, user: User, name: str, *arguments: Any) -> Any:
        """Make a call on both sides, see that the answers are the same, and return what they are."""
        mounted, native = (self.ask(side, user, name, *arguments) for side in (0, 1))
        shown = [value if not isinstance(value, str) else value[:60] for value in arguments]
        assert mounted == native, f"{name} {shown} by {user.ids}: {mounted} in the mount, {native} natively"
        return native[1]


@contextmanager
def pair_of(transport: Transport) -> Iterator[Pair]:
    """Mount a workspace that every user can reach, beside a native directory."""
    # Not below the run's temporary directory: that is closed to other users.
    with new_directory("chronicle-posix-") as directory:
        for path in (directory, directory / "mounts", directory / "native"):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        socket = directory / "zygote.sock"
        launcher.start(
            socket, directory / "mounts", directory / "log", os.getpid(), transport=transport, few_mounts=True
        )
        try:
            spec = LayerSpec("w", directory / "layers", None, 1, 1)
            opened = open_fuse_workspace(socket, spec, f"file://{directory}/blobs", directory / "mounts" / "w")
            pair = Pair(directory, opened.workspace, transport)
            try:
                yield pair
            finally:
                for user in pair.users:
                    user.end()
                opened.workspace.close()
        finally:
            launcher.shut_down(socket)
            mounts.unmount_all_under(directory)
            log = (directory / "log").read_text()
            print(log)
        assert "Traceback" not in log
