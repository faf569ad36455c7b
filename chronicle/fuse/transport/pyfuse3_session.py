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

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyfuse3

from chronicle.errors import Unavailable
from chronicle.fuse.transport import device
from chronicle.fuse.transport.parked_requests import ParkedQueue
from chronicle.fuse.transport.parking import Parking
from chronicle.fuse.transport.pyfuse3_trio_shim import Gate, TrioShim
from chronicle.fuse.transport.request_poll import RequestPoll
from chronicle.fuse.transport.revoke import drop_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from pathlib import Path

    from chronicle.fuse.deadlines import FetchedBlobs, ParkingPolicy
    from chronicle.fuse.transport.interleave import Interleaver
    from chronicle.fuse.transport.pyfuse3_trio_shim import ParkedRead
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["Pyfuse3Session"]

log = logging.getLogger(__name__)

_MAX_DEFERRED: Final = 64
"""Requests that one command may defer; each takes a megabyte at most."""


class Pyfuse3Session:
    """A mount and the loop that serves it.

    The caller mounts, runs and closes in one thread, once per process: pyfuse3 cannot hold a second session.

    Args:
        operations: answer the requests. An operation may suspend at the gate and in `ParkedRead` only, and raise
            nothing but ``FUSEError``.
        mountpoint: an existing directory.
        heartbeat: records the server's activity.
        gate: suspends operations that change something; without one no request is served during a command.
        parking: decides which operations may be parked, for a remote store.
        source: the mount's device in ``df`` and mountinfo; ASCII without commas.
        allow_other: admit users other than the mounting one, subject to the files' modes. Needs root or
            ``user_allow_other`` in ``/etc/fuse.conf``.
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
        self._operations = operations
        self._mountpoint = mountpoint
        self._source = source
        self._allow_other = allow_other
        self._poll = RequestPoll(heartbeat)
        self._fuse_fd: int | None = None
        self._open = False
        self._gate = gate
        self._trio = TrioShim(self._wait_for_request, self._suspend)
        self._helper: Coroutine[Any, Any, None] | None = None
        """The loop that reads requests during a command, suspended where it waits for the next."""
        self._deferred: list[Coroutine[Any, Any, None]] = []
        """Loops whose operations are suspended at the gate, the oldest first."""
        self._broken: Exception | None = None
        """An exception that an operation raised during a command, against its contract."""
        self._parked: ParkedQueue[Coroutine[Any, Any, None]] = ParkedQueue()
        """Loops whose operations wait for a blob."""
        self._parking: Parking[Coroutine[Any, Any, None]] | None = None
        if parking is not None:
            self._parking = Parking(self._parked, parking, self._poll, self._execute_parked, self._check_parked)
        self._in_command = False

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

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, between requests, each time a descriptor is readable or hung up.

        The callback must not raise: an exception ends the session.
        """
        self._poll.add(fd, callback)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor. Call this before closing it."""
        self._poll.remove(fd)

    def run(self) -> None:
        """Serve until the mount is unmounted from outside or `stop` is called.

        Raises:
            Exception: an operation or a callback raised it against its contract; it is logged. Its request fails when
                the session is closed, which the caller does next.
        """
        main: Coroutine[Any, Any, None] = pyfuse3.main(1, 1)
        if self._parking is not None:
            self._parking.begin()
        try:
            main.send(None)
        except StopIteration:
            return
        except Exception:
            log.exception("the mount failed: %s", self._mountpoint)
            raise
        finally:
            self._fail_waiting()
        main.close()
        raise RuntimeError("pyfuse3 suspended; the session has no event loop to resume it")

    def stop(self) -> None:
        """Make `run` return before it reads another request. For callbacks."""
        self._poll.stop()

    def interleave(self) -> Interleaver:
        """Serve requests that change nothing while a callback runs, and defer the others. For callbacks."""
        self._in_command = True
        extra = self._parking.watched() if self._parking is not None else None
        return self._poll.interleave(self._serve_one, self._check_parked, self._replay_deferred, extra)

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
        assert self._parking is not None
        self._parking.park(loop, waits.fetched)

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

    def _check_parked(self) -> None:
        if self._parking is not None and self._parked:
            self._parking.resume()

    def _fail_waiting(self) -> None:
        """Fail deferred and parked requests, which will not be executed: dropping pages would wait for them."""
        if self._gate is not None:
            self._gate.refuses = True
            self._broken = None
            self._replay_deferred()
        for loop in self._parking.end() if self._parking is not None else ():
            self._trio.finish(loop)

    def invalidate(self, names: Iterable[tuple[int, bytes]], inodes: Iterable[int], done: Callable[[], None]) -> None:
        """Make the kernel drop cached names, and the cached attributes and pages of inodes.

        Requests are served meanwhile, since dropping a name or a page waits for the requests on it.
        """

        def tell() -> None:
            for parent, name in names:
                with suppress(OSError):  # the kernel has forgotten it
                    pyfuse3.invalidate_entry(parent, name)
            for inode in inodes:
                with suppress(OSError):
                    pyfuse3.invalidate_inode(inode)

        self._poll.run_in_thread(tell, done)

    def drop_pages(self, inodes: Iterable[int]) -> None:
        """Make the kernel drop the cached pages of inodes; see `revoke`. Only for a session that is stopped."""
        if self._fuse_fd is not None:
            drop_pages(self._fuse_fd, inodes, pyfuse3.invalidate_inode)

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
        self._fuse_fd = fuse_fd
        return self._poll.wait(fuse_fd)
