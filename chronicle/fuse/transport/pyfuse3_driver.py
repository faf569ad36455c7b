"""One FUSE mount served by one thread over pyfuse3, without an event loop.

pyfuse3 is written for trio: its ``main()`` is a coroutine that waits for the FUSE descriptor, reads a request, and
awaits the operation that answers it. An operation of ours waits for the disk only, so an event loop has nothing to
choose from and only costs: about half of each request. Here pyfuse3's ``trio`` is replaced by a few lines
that wait *inside* the call, so that one ``send(None)`` to ``main()`` runs the mount from its first request to its end.

While no request is there, other descriptors are watched too (the control sockets of a mount server). Their callbacks
run between requests, in the same thread; so neither needs a lock against the other.

While a command runs that lets requests in (`chronicle.fuse.transport.interleave`), another of pyfuse3's session loops
reads them, one at a time; between two it is suspended where it waits for the next. An operation that has to wait for
the end of the command suspends at the `Gate`, its loop with it, and a further loop takes the next request. So here,
too, everything happens in one thread and in one order. One that needs a blob of a far store suspends likewise
(`Aside`), and goes on when the blob is there.

Facts of pyfuse3 3.5 this relies on: state is global, so a process serves one mount; ``main(1, 1)`` starts exactly one
session loop; an operation may raise only ``FUSEError``. Any other exception leaves its request without an answer, so
the session is ended: the kernel then fails that request and all later ones, which is better than a caller that hangs.

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
from chronicle.fuse.transport.parked_requests import LOOK_S, Parked
from chronicle.fuse.transport.poll import Watch
from chronicle.fuse.transport.pyfuse3_trio import Gate, Waits
from chronicle.fuse.transport.revoke import drop_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from pathlib import Path

    from chronicle.fuse.deadlines import Waiting
    from chronicle.fuse.transport.interleave import ServedMeanwhile
    from chronicle.fuse.transport.pyfuse3_trio import Aside
    from chronicle.fuse.watchdog import Pulse

__all__ = ["MountSession"]

log = logging.getLogger(__name__)

_WAITING: Final = 64
"""So many requests are kept while a command runs; each takes a megabyte at most."""


class MountSession:
    """A mount, and the loop that serves it.

    The caller mounts, runs and closes in one thread, once a process: pyfuse3 cannot hold a second session.

    Args:
        operations: answers the requests. No operation may suspend but at the gate, or in `Aside`; each must raise
            nothing but ``FUSEError``.
        mountpoint: an existing directory.
        pulse: says what is being done.
        gate: where operations wait that change something; without one nothing is served while a command runs.
        waiting: how operations wait for a store beyond a network, if there is one.
        source: what ``df`` and mountinfo show as the device; ASCII without commas.
        allow_other: let users other than the mounting one in, still subject to the files' modes. Needs root or
            ``user_allow_other`` in ``/etc/fuse.conf``.
    """

    def __init__(
        self,
        operations: pyfuse3.Operations,
        mountpoint: Path,
        pulse: Pulse | None = None,
        gate: Gate | None = None,
        waiting: Waiting | None = None,
        *,
        source: str = "chronicle",
        allow_other: bool = False,
    ) -> None:
        self._operations = operations
        self._mountpoint = mountpoint
        self._source = source
        self._allow_other = allow_other
        self._watch = Watch(pulse)
        self._fuse_fd: int | None = None
        self._open = False
        self._gate = gate
        self._waits = Waits(self)
        self._spare: Coroutine[Any, Any, None] | None = None
        """The loop that takes requests while a command runs, suspended where it waits for the next."""
        self._waiting: list[Coroutine[Any, Any, None]] = []
        """Loops that are suspended in an operation at the gate, the first come first."""
        self._broken: Exception | None = None
        """What an operation raised while a command ran, and should not have."""
        self._waiting_for = waiting
        self._parked: Parked[Coroutine[Any, Any, None]] | None = None
        """Loops that are suspended in an operation that waits for a blob, once one was."""
        self._in_command = False

    def mount(self) -> None:
        """Mount. The kernel queues requests from now on; `run` answers them.

        Raises:
            Unavailable: the kernel, ``fusermount3`` or libfuse refused.
        """
        pyfuse3.trio = self._waits  # type: ignore[attr-defined]
        # libfuse itself would look at the mountpoint first, where a guard answers nothing; it serves what is mounted.
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
        self._watch.add(fd, callback)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor; to be called before it is closed."""
        self._watch.remove(fd)

    def run(self) -> None:
        """Serve until the mount is unmounted from outside or `stop` is called.

        Raises:
            Exception: what an operation or a callback raised and should not have; it is logged. The request it
                belonged to fails when the session is closed, which the caller does next.
        """
        main: Coroutine[Any, Any, None] = pyfuse3.main(1, 1)
        if self._waiting_for is not None:
            self._waiting_for.is_on = True
        try:
            main.send(None)
        except StopIteration:
            return
        except Exception:
            log.exception("the mount failed: %s", self._mountpoint)
            raise
        finally:
            self._refuse_kept()
        main.close()
        raise RuntimeError("pyfuse3 suspended; the driver has no event loop to resume it")

    def stop(self) -> None:
        """Make `run` return before it reads another request. For callbacks."""
        self._watch.stop()

    def meanwhile(self) -> ServedMeanwhile:
        """Return what answers requests that change nothing while a callback runs, and keeps the others."""
        self._in_command = True
        also = (self._may_park().fileno(), self._resume_parked) if self._waiting_for is not None else None
        return self._watch.meanwhile(self._take, self._look, self._catch_up, also)

    def _take(self) -> bool:
        """Have a request read while a command runs, and answered or kept; False if no more are to be read."""
        if self._gate is None:
            return False
        if self._spare is None:
            self._spare = self._waits.another_loop()
        self._gate.shut = True
        try:
            waits = self._waits.resume(self._spare)
        except StopIteration:  # unmounted, or aborted: whoever waits was told that it failed
            self._spare, self._gate.refuses = None, True
            return False
        except BlockingIOError:  # the request was taken back between poll and read
            self._spare = None
            return True
        except Exception as error:  # noqa: BLE001 - it is not the command's, and raised when that has ended
            self._spare, self._broken = None, error
            return False
        finally:
            self._gate.shut = False
        if waits is not None:
            self.set_aside(self._spare, waits)
            self._spare = None
        return len(self._waiting) < _WAITING

    def _catch_up(self) -> None:
        """Carry out what was kept while a command ran."""
        self._in_command = False
        if self._broken is not None:
            raise self._broken
        while self._waiting:
            self._watch.get_on()
            self._finish(self._waiting.pop(0))
        if self._spare is not None:
            spare, self._spare = self._spare, None
            self._finish(spare)

    def _finish(self, loop: Coroutine[Any, Any, None]) -> None:
        """Let a loop end with the operation in which it is suspended, unless that has to wait again."""
        waits = self._waits.finish(loop)
        if waits is not None:
            self.set_aside(loop, waits)

    def set_aside(self, loop: Coroutine[Any, Any, None], waits: Gate | Aside) -> None:
        """Keep a loop that is suspended in an operation."""
        if isinstance(waits, Gate):
            self._waiting.append(loop)
            return
        assert self._waiting_for is not None
        parked = self._may_park()
        parked.add(loop, waits.supply)
        self._waiting_for.is_on = not parked.is_full
        self._watch.look_every(LOOK_S, self._look)

    def _may_park(self) -> Parked[Coroutine[Any, Any, None]]:
        if self._parked is None:
            self._parked = Parked()
            self._watch.add(self._parked.fileno(), self._resume_parked)
        return self._parked

    def _resume_parked(self) -> None:
        """Go on with the operations that have what they waited for, or have waited too long."""
        assert self._parked is not None
        assert self._waiting_for is not None
        with self._watch.between():
            for loop, _ in self._parked.take_due():
                self._watch.get_on()
                if self._gate is not None:
                    self._gate.shut = self._in_command
                try:
                    self._finish(loop)
                except Exception as error:
                    if not self._in_command:
                        raise
                    self._broken = error  # it is not the command's, and raised when that has ended
                finally:
                    if self._gate is not None:
                        self._gate.shut = False
        self._waiting_for.is_on = not self._parked.is_full
        if not self._parked:
            self._watch.look_every(0, None)

    def _look(self) -> None:
        if self._parked:
            self._resume_parked()

    def _refuse_kept(self) -> None:
        """Fail what was kept and is not to be carried out any more: dropping pages would wait for it."""
        if self._gate is not None:
            self._gate.refuses = True
            self._broken = None
            self._catch_up()
        if self._waiting_for is not None:
            self._waiting_for.is_on = False
        for loop, _ in self._parked.take_all() if self._parked is not None else ():
            self._waits.finish(loop)

    def forget(self, names: Iterable[tuple[int, bytes]], inodes: Iterable[int], done: Callable[[], None]) -> None:
        """Make the kernel ask anew what names are, and what inodes have and hold.

        Serving goes on meanwhile, since dropping a name or a page waits for the requests that are about it.
        """

        def tell() -> None:
            for parent, name in names:
                with suppress(OSError):  # the kernel does not know it any more
                    pyfuse3.invalidate_entry(parent, name)
            for inode in inodes:
                with suppress(OSError):
                    pyfuse3.invalidate_inode(inode)

        self._watch.beside(tell, done)

    def forget_pages(self, inodes: Iterable[int]) -> None:
        """Make the kernel drop what it cached of inodes; see `drop_pages`. Only for a session that is stopped."""
        if self._fuse_fd is not None:
            drop_pages(self._fuse_fd, inodes, pyfuse3.invalidate_inode)

    def close(self) -> None:
        """End the connection to the kernel; whoever still uses the mount gets ENOTCONN. Unmounting is left to others.

        Unmounting here could wait for pages of a mapping to be written back, to us, who do not listen any more.
        """
        if self._open:
            self._open = False
            if self._parked is not None:
                self._parked.close()
            pyfuse3.close(unmount=False)

    def wait_for_request(self, fuse_fd: int) -> bool:
        """Serve the watched descriptors until a request is there; called by pyfuse3 through `Waits`.

        Returns:
            False when the session is to end.
        """
        self._fuse_fd = fuse_fd
        return self._watch.wait(fuse_fd)
