"""One FUSE mount served by one thread over pyfuse3, without an event loop.

pyfuse3 is written for trio: its ``main()`` is a coroutine that waits for the FUSE descriptor, reads a request, and
awaits the operation that answers it. An operation of ours never waits for anything but the disk, so an event loop has
nothing to choose from and only costs: about half of each request. Here pyfuse3's ``trio`` is replaced by a few lines
that wait *inside* the call, so that one ``send(None)`` to ``main()`` runs the mount from its first request to its end.

While no request is there, other descriptors are watched too (the control sockets of a mount server). Their callbacks
run between requests, in the same thread; so neither needs a lock against the other.

While a command runs that lets requests in (`chronicle.fuse.meanwhile`), another of pyfuse3's session loops reads them,
one at a time; between two it is suspended where it waits for the next. An operation that has to wait for the end of the
command suspends at the `Gate`, its loop with it, and a further loop takes the next request. So here, too, everything
happens in one thread and in one order.

Facts of pyfuse3 3.5 this relies on: state is global, so a process serves one mount; ``main(1, 1)`` starts exactly one
session loop; an operation may raise only ``FUSEError``. Any other exception leaves its request without an answer, so
the session is ended: the kernel then fails that request and all later ones, which is better than a caller that hangs.

This module knows nothing of workspaces: any ``pyfuse3.Operations`` will do. A `FileSystem` becomes one by
`chronicle.fuse.pyfuse3_operations`.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import pyfuse3

from chronicle.errors import Unavailable
from chronicle.fuse import device
from chronicle.fuse.cutting import drop_pages
from chronicle.fuse.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable
    from pathlib import Path

    from chronicle.fuse.meanwhile import ServedMeanwhile
    from chronicle.fuse.pulse import Pulse

__all__ = ["Gate", "MountSession"]

log = logging.getLogger(__name__)

_WAITING: Final = 64
"""So many requests are kept while a command runs; each takes a megabyte at most."""


class Gate:
    """Where an operation waits that must not happen while a command runs: it awaits this if it is shut."""

    def __init__(self) -> None:
        self.shut = False
        self.refuses = False
        """Whether the session has ended: what waited is not done."""

    def __await__(self) -> Generator[Gate, None, None]:
        yield self
        if self.refuses:
            raise pyfuse3.FUSEError(errno.ENOTCONN)


class MountSession:
    """A mount, and the loop that serves it.

    The caller mounts, runs and closes in one thread, once a process: pyfuse3 cannot hold a second session.

    Args:
        operations: answers the requests. No operation may suspend but at the gate; each must raise nothing but
            ``FUSEError``.
        mountpoint: an existing directory.
        pulse: says what is being done.
        gate: where operations wait that change something; without one nothing is served while a command runs.
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
        self._waits = _Waits(self)
        self._spare: Coroutine[Any, Any, None] | None = None
        """The loop that takes requests while a command runs, suspended where it waits for the next."""
        self._waiting: list[Coroutine[Any, Any, None]] = []
        """Loops that are suspended in an operation at the gate, the first come first."""
        self._broken: Exception | None = None
        """What an operation raised while a command ran, and should not have."""

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
        raise RuntimeError("an operation suspended; the driver has no event loop to resume it")

    def stop(self) -> None:
        """Make `run` return before it reads another request. For callbacks."""
        self._watch.stop()

    def meanwhile(self) -> ServedMeanwhile:
        """Return what answers requests that change nothing while a callback runs, and keeps the others."""
        return self._watch.meanwhile(self._take, lambda: None, self._catch_up)

    def _take(self) -> bool:
        """Have a request read while a command runs, and answered or kept; False if no more are to be read."""
        if self._gate is None:
            return False
        if self._spare is None:
            self._spare = self._waits.another_loop()
        self._gate.shut = True
        try:
            at_gate = self._waits.resume(self._spare)
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
        if at_gate:
            self._waiting.append(self._spare)
            self._spare = None
        return len(self._waiting) < _WAITING

    def _catch_up(self) -> None:
        """Carry out what was kept while a command ran."""
        if self._broken is not None:
            raise self._broken
        while self._waiting:
            self._watch.get_on()
            self._waits.finish(self._waiting.pop(0))
        if self._spare is not None:
            spare, self._spare = self._spare, None
            self._waits.finish(spare)

    def _refuse_kept(self) -> None:
        """Fail what was kept and is not to be carried out any more: dropping pages would wait for it."""
        if self._gate is not None:
            self._gate.refuses = True
            self._broken = None
            self._catch_up()

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
            pyfuse3.close(unmount=False)

    def wait_for_request(self, fuse_fd: int) -> bool:
        """Serve the watched descriptors until a request is there; called by pyfuse3 through `_Waits`.

        Returns:
            False when the session is to end.
        """
        self._fuse_fd = fuse_fd
        return self._watch.wait(fuse_fd)


class _Waits:
    """What pyfuse3 uses of trio, for one task that never gives up control, and its helpers while a command runs."""

    class ClosedResourceError(Exception):
        """Raised from `wait_readable` to end pyfuse3's loop."""

    class Lock:
        """There is one task: the lock is free."""

        async def __aenter__(self) -> None:
            return None

        async def __aexit__(self, *_: object) -> None:
            return None

    name = "chronicle"

    def __init__(self, session: MountSession) -> None:
        self._session = session
        self.lowlevel = self
        self.from_thread = self
        self._nursery = _Nursery()
        self._is_helping = False
        """Whether a loop runs that helps while a command runs; the one that the command came in by stands still."""
        self._may_read = False

    def current_trio_token(self) -> str:
        """Name the loop that there is not."""
        return self.name

    def current_task(self) -> _Waits:
        """Return something with a name."""
        return self

    async def wait_readable(self, fd: int) -> None:
        """Wait for a request, in the call itself; in a helper, until it is resumed."""
        if not self._is_helping:
            if not self._session.wait_for_request(fd):
                raise self.ClosedResourceError
            return
        if not self._may_read:
            await _Pause()
        if not self._may_read:
            raise self.ClosedResourceError
        self._may_read = False

    def notify_closing(self, fd: int) -> None:
        """Nobody else waits that would have to be told."""

    def open_nursery(self) -> _Nursery:
        """Return a place for the one session loop."""
        return self._nursery

    def another_loop(self) -> Coroutine[Any, Any, None]:
        """Return a further session loop."""
        return self._nursery.another_loop()

    def resume(self, loop: Coroutine[Any, Any, None]) -> bool:
        """Let a helper read one request; say whether that waits at the gate.

        Raises:
            StopIteration: the session is over.
        """
        self._may_read = self._is_helping = True
        try:
            return isinstance(loop.send(None), Gate)
        finally:
            self._may_read = self._is_helping = False

    def finish(self, loop: Coroutine[Any, Any, None]) -> None:
        """Let a helper end, and what waits in it happen before."""
        self._is_helping = True
        try:
            while True:
                loop.send(None)
        except StopIteration:
            return
        finally:
            self._is_helping = False


class _Pause:
    """Suspends a loop until it is resumed."""

    def __await__(self) -> Generator[_Pause, None, None]:
        yield self


class _Nursery:
    """Runs the one task that is started in it, when the block ends."""

    def __init__(self) -> None:
        self._task: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def __aenter__(self) -> Self:
        return self

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object, **_: str) -> None:
        """Take the session loop; its name is of no use here. Further ones are not: helpers make it look for some."""
        if self._task is None:
            self._task = lambda: function(self, *args[1:])

    def another_loop(self) -> Coroutine[Any, Any, None]:
        """Return a further session loop."""
        assert self._task is not None, "a session runs"
        return self._task()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or self._task is None:
            return
        while True:
            try:
                await self._task()
            except BlockingIOError as error:  # the request was taken back between poll and read
                if error.errno != errno.EAGAIN:
                    raise
            else:
                return
