"""One FUSE mount served by one thread over pyfuse3, without an event loop.

pyfuse3 is written for trio: its ``main()`` is a coroutine that waits for the FUSE descriptor, reads a request, and
awaits the operation that answers it. Our operations wait for nothing but the disk, so an event loop has nothing to
schedule and costs about half of each request. Here pyfuse3's ``trio`` is replaced by a shim
(`chronicle.fuse.transport.pyfuse3_trio_shim`) that waits *inside* the call: one ``send(None)`` to ``main()`` runs the
mount from its first request to its end.

While no request is pending, other descriptors are watched too (the control sockets of a mount server). Their callbacks
run between requests, in the same thread, so neither needs a lock against the other.

While a command interleaves requests (`chronicle.fuse.transport.interleave`), a further session loop of pyfuse3 reads
them, one at a time; between two requests it is suspended where it waits for the next. An operation that must wait for
the end of the command suspends at the `Gate`, its loop with it, and a further loop reads the next request. An operation
that needs a blob of a remote store suspends likewise (`ParkedRead`), and continues when the blob is there. All this
happens in one thread and in one order.

Facts of pyfuse3 3.5 this relies on: its state is global, so a process serves one mount; ``main(1, 1)`` starts exactly
one session loop; an operation may raise only ``FUSEError``. Any other exception leaves its request unanswered, so the
session ends: the kernel then fails that request and all later ones, and no caller hangs.

This module knows nothing of workspaces: any ``pyfuse3.Operations`` will do. A `FileSystem` becomes one by
`chronicle.fuse.transport.pyfuse3_operations`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyfuse3

from chronicle.errors import Unavailable
from chronicle.fuse.transport import device
from chronicle.fuse.transport.parked_requests import ParkedQueue
from chronicle.fuse.transport.pyfuse3_trio_shim import Gate, TrioShim
from chronicle.fuse.transport.session import Session

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from chronicle.fuse.deadlines import FetchedBlobs, ParkingPolicy
    from chronicle.fuse.transport.pyfuse3_trio_shim import ParkedRead
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["Pyfuse3Session"]

_MAX_DEFERRED: Final = 64
"""Requests that one command may defer; each takes a megabyte at most."""


class Pyfuse3Session(Session["Coroutine[Any, Any, None]"]):
    """A session whose requests are suspended loops of pyfuse3, which cannot hold a second session.

    Args:
        operations: answer the requests. An operation may suspend at the gate and in `ParkedRead` only, and raise
            nothing but ``FUSEError``.
        mountpoint, heartbeat, allow_other: see `Session`.
        gate: suspends operations that change something; without one no request is served during a command.
        parking: decides which operations may be parked, for a remote store.
        source: the mount's device in ``df`` and mountinfo; ASCII without commas.
    """

    def __init__(
        self,
        operations: pyfuse3.Operations,
        mountpoint: Path,
        heartbeat: Heartbeat | None = None,
        gate: Gate | None = None,
        parking: ParkingPolicy | None = None,
        *,
        source: str = "chronicle",
        allow_other: bool = False,
    ) -> None:
        super().__init__(mountpoint, heartbeat, ParkedQueue(), parking, source=source, allow_other=allow_other)
        self._operations = operations
        self._open = False
        self._gate = gate
        self._trio = TrioShim(self._wait_for_request, self._suspend)
        self._helper: Coroutine[Any, Any, None] | None = None
        """The loop that reads requests during a command, suspended where it waits for the next."""
        self._deferred: list[Coroutine[Any, Any, None]] = []
        """Loops whose operations are suspended at the gate, the oldest first."""

    def mount(self) -> None:
        """Mount. The kernel queues requests from now on; `run` answers them.

        Raises:
            Unavailable: the kernel, ``fusermount3`` or libfuse refused.
        """
        pyfuse3.trio = self._trio  # type: ignore[attr-defined]
        # libfuse would look at the mountpoint before it mounts, and a guard answers nothing: it gets a mounted device.
        fd = device.mount(self._mountpoint, self._source, allow_other=self._allow_other)
        try:
            pyfuse3.init(self._operations, f"/dev/fd/{fd}", set())
        except RuntimeError as error:
            os.close(fd)
            raise Unavailable(f"could not serve {self._mountpoint}: {error}") from error
        self._open = True

    def _serve(self) -> None:
        main: Coroutine[Any, Any, None] = pyfuse3.main(1, 1)
        try:
            main.send(None)
        except StopIteration:
            return
        main.close()
        raise RuntimeError("pyfuse3 suspended; the session has no event loop to resume it")

    def _serve_one(self) -> bool:
        """Read a request during a command, and answer or defer it; False if no more are to be read."""
        if self._gate is None:
            return False
        if self._helper is None:
            self._helper = self._trio.new_loop()
        self._gate.shut = True
        try:
            waits = self._trio.resume(self._helper)
        except StopIteration:  # unmounted or aborted: all callers were told that their requests failed
            self._helper, self._gate.refuses = None, True
            return False
        except BlockingIOError:  # the request was withdrawn between poll and read
            self._helper = None
            return True
        except Exception as error:  # noqa: BLE001 - not the command's; raised after it
            self._helper, self._broken = None, error
            return False
        finally:
            self._gate.shut = False
        if waits is not None:
            self._suspend(self._helper, waits)
            self._helper = None
        return len(self._deferred) < _MAX_DEFERRED

    def _replay_deferred(self) -> None:
        """Execute the requests that were deferred during a command."""
        self._in_command = False
        if self._broken is not None:
            raise self._broken
        while self._deferred:
            self._poll.begin_request()
            self._finish(self._deferred.pop(0))
        if self._helper is not None:
            helper, self._helper = self._helper, None
            self._finish(helper)

    def _finish(self, loop: Coroutine[Any, Any, None]) -> None:
        """Run a loop to its end with its suspended operation, unless that suspends again."""
        waits = self._trio.finish(loop)
        if waits is not None:
            self._suspend(loop, waits)

    def _suspend(self, loop: Coroutine[Any, Any, None], waits: Gate | ParkedRead) -> None:
        """Take over a loop whose operation is suspended."""
        if isinstance(waits, Gate):
            self._deferred.append(loop)
            return
        self._park(loop, waits.fetched)

    def _execute_parked(self, loop: Coroutine[Any, Any, None], _: FetchedBlobs) -> None:
        """Resume an operation whose read has ended, or whose deadline has expired."""
        if self._gate is not None:
            self._gate.shut = self._in_command
        try:
            self._finish(loop)
        except Exception as error:
            if not self._in_command:
                raise
            self._broken = error  # not the command's; raised after it
        finally:
            if self._gate is not None:
                self._gate.shut = False

    def _fail_waiting(self) -> None:
        """Fail deferred and parked requests, which will not be executed: dropping pages would wait for them."""
        if self._gate is not None:
            self._gate.refuses = True
            self._broken = None
            self._replay_deferred()
        for loop in self._end_parking():
            self._trio.finish(loop)

    def _drop_name(self, parent: int, name: bytes) -> None:
        with suppress(OSError):
            pyfuse3.invalidate_entry(parent, name)

    def _drop_inode(self, inode: int) -> None:
        with suppress(OSError):
            pyfuse3.invalidate_inode(inode)

    def close(self) -> None:
        """Close the connection to the kernel; users of the mount get ENOTCONN. It stays mounted.

        Unmounting here could wait for pages of a mapping to be written back to this process, which has stopped serving.
        """
        if self._open:
            self._open = False
            self._parked.close()
            pyfuse3.close(unmount=False)

    def _wait_for_request(self, fuse_fd: int) -> bool:
        """Serve the watched descriptors until a request is pending; called by pyfuse3 through the shim.

        Returns:
            False when the session is to end.
        """
        self._device = fuse_fd
        return self._poll.wait(fuse_fd)
