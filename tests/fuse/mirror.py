"""A zygote whose mounts mirror plain directories, and misbehave when asked to: the plumbing without the versioning.

    python -m tests.fuse.mirror --socket PATH --mounts DIR --transport NAME [--owner PID] [--user UID]

A file named ``raise`` makes reading it raise in the operation, ``abort`` ends the server, ``hang`` never returns; a
workspace named ``refused`` cannot be opened, one named ``broken`` ends as soon as it is mounted, the
opening of one named ``stuck`` hangs at the first time, and of one whose name
begins with ``kept`` a rollback takes nothing away.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from chronicle.errors import Corrupt, InvalidInput, NotFound
from chronicle.fuse.mountpoints import mountinfo
from chronicle.fuse.server.engine import Served
from chronicle.fuse.server.request import MountRequest
from chronicle.fuse.transport.choice import import_transport
from chronicle.fuse.watchdog import Heartbeat
from chronicle.fuse.zygote.supervisor import REQUEST_DEADLINE_S, Zygote
from chronicle.ids import BlobId
from chronicle.workspace.port import Iteration, LayerSpec, TreeRef
from tests.fuse.posix.plain import PlainDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.buffer import Interleaving
    from chronicle.workspace.layer.state.touched import Touched

EMPTY = TreeRef(BlobId("0" * 64), BlobId("0" * 64))
VERSION = bytes(range(256)) * 10_000


class MirrorEngine:
    """Knows no versions: says back what it was told, and keeps count of it in a file."""

    def __init__(self, spec: LayerSpec, directory: Path) -> None:
        self.base = self.sealed = spec.base or EMPTY
        self.unreported = spec.base
        self.turn = spec.turn
        self._directory = directory

    def begin_turn(self, turn: int) -> None:
        self.turn = turn

    def seal(self, _: Interleaving) -> TreeRef:
        self.sealed = TreeRef(BlobId(f"{self.turn:064x}"), BlobId("1" * 64))
        return self.sealed

    def adopt(self, ref: TreeRef) -> None:
        dying = self._directory.with_suffix(".dies")
        if dying.exists():
            dying.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if ref not in (self.base, self.sealed):
            raise InvalidInput("it is not what was sealed last")
        self.base = ref

    def rollback(self) -> None:
        if self._directory.name.startswith("kept"):
            return
        for path in self._directory.iterdir():
            path.unlink()

    def move_to(self, ref: TreeRef) -> Touched:
        raise NotFound(f"{ref.tree_id} was never sealed")

    def history(self, path: str) -> Sequence[Iteration]:
        if path == "missing":
            raise NotFound("missing was never there")
        if path == "bug":
            raise ZeroDivisionError
        return [Iteration(1, 2, 3, "h", "write", self.turn)]

    def at(self, path: str, iteration: int) -> BinaryIO:
        if iteration != 1:
            raise NotFound(f"{path} has no iteration {iteration}")
        return io.BytesIO(VERSION)

    def restore(self, then: TreeRef | None, path: bytes) -> Touched:
        raise NotFound(f"{os.fsdecode(path)} was never there")

    def close(self) -> None:
        self._directory.with_suffix(".closed").touch()


class Misbehaving(PlainDirectory):
    """Raises and hangs on demand."""

    def read(self, handle: int, offset: int, size: int) -> bytes:
        name = Path(f"/proc/self/fd/{handle}").readlink().name
        if name == "raise":
            raise ZeroDivisionError
        if name == "abort":
            os.abort()
        if name == "hang":
            signal.pause()
        return super().read(handle, offset, size)


def open_mirror(request: MountRequest, _: Heartbeat) -> Served:
    if request.spec.workspace_id == "refused":
        raise Corrupt("its log is damaged")
    directory = request.spec.layers / request.spec.workspace_id
    directory.mkdir(parents=True, exist_ok=True)
    engine = MirrorEngine(request.spec, directory)
    if request.spec.workspace_id == "stuck" and not (directory / "tried").exists():
        (directory / "tried").touch()
        signal.pause()
    if request.spec.workspace_id == "broken":
        (directory / "tries").open("ab").write(b".")
        os.abort()
    return Served(engine, Misbehaving(directory))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--mounts", type=Path, required=True)
    parser.add_argument("--transport", required=True)
    parser.add_argument("--request-deadline", type=float, default=REQUEST_DEADLINE_S)
    parser.add_argument("--owner", type=int)
    parser.add_argument("--user", type=int, help="whom to be, all being imported")
    options = parser.parse_args()
    if options.user is not None:
        # What Python would look for later may be where that user may not look.
        mountinfo.is_mounted(Path("/"))
        import_transport(options.transport)
        os.setgroups([])
        os.setgid(options.user)
        os.setuid(options.user)
        ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: else this process may not look into its own /proc
    logging.basicConfig(level=logging.INFO)
    Zygote(
        options.socket,
        options.mounts,
        open_mirror,
        options.owner,
        transport=options.transport,
        request_deadline_s=options.request_deadline,
    ).run()


if __name__ == "__main__":
    main()
