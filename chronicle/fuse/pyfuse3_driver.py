"""One FUSE mount served by one thread over pyfuse3, without an event loop.

pyfuse3 is written for trio: its ``main()`` is a coroutine that waits for the FUSE descriptor, reads a request, and
awaits the operation that answers it. An operation of ours never waits for anything but the disk, so an event loop has
nothing to choose from and only costs: about half of each request. Here pyfuse3's ``trio`` is replaced by a few lines
that wait *inside* the call, so that one ``send(None)`` to ``main()`` runs the mount from its first request to its end.

While no request is there, other descriptors are watched too (the control sockets of a mount server). Their callbacks
run between requests, in the same thread; so neither needs a lock against the other.

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
from typing import TYPE_CHECKING, Any, Self

import pyfuse3

from chronicle.errors import Unavailable
from chronicle.fuse import device
from chronicle.fuse.cutting import drop_pages
from chronicle.fuse.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from pathlib import Path

    from chronicle.fuse.pulse import Pulse

__all__ = ["MountSession"]

log = logging.getLogger(__name__)


class MountSession:
    """A mount, and the loop that serves it.

    The caller mounts, runs and closes in one thread, once a process: pyfuse3 cannot hold a second session.

    Args:
        operations: answers the requests. No operation may suspend; each must raise nothing but ``FUSEError``.
        mountpoint: an existing directory.
        pulse: says what is being done.
        source: what ``df`` and mountinfo show as the device; ASCII without commas.
        allow_other: let users other than the mounting one in, still subject to the files' modes. Needs root or
            ``user_allow_other`` in ``/etc/fuse.conf``.
    """

    def __init__(
        self,
        operations: pyfuse3.Operations,
        mountpoint: Path,
        pulse: Pulse | None = None,
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

    def mount(self) -> None:
        """Mount. The kernel queues requests from now on; `run` answers them.

        Raises:
            Unavailable: the kernel, ``fusermount3`` or libfuse refused.
        """
        pyfuse3.trio = _Waits(self)  # type: ignore[attr-defined]
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
        main.close()
        raise RuntimeError("an operation suspended; the driver has no event loop to resume it")

    def stop(self) -> None:
        """Make `run` return before it reads another request. For callbacks."""
        self._watch.stop()

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
    """What pyfuse3 uses of trio, for one task that never gives up control."""

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

    def current_trio_token(self) -> str:
        """Name the loop that there is not."""
        return self.name

    def current_task(self) -> _Waits:
        """Return something with a name."""
        return self

    async def wait_readable(self, fd: int) -> None:
        """Wait for a request, in the call itself."""
        if not self._session.wait_for_request(fd):
            raise self.ClosedResourceError

    def notify_closing(self, fd: int) -> None:
        """Nobody else waits that would have to be told."""

    def open_nursery(self) -> _Nursery:
        """Return a place for the one session loop."""
        return _Nursery()


class _Nursery:
    """Runs the one task that is started in it, when the block ends."""

    def __init__(self) -> None:
        self._task: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def __aenter__(self) -> Self:
        return self

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object, **_: str) -> None:
        """Take the session loop; its name is of no use here."""
        self._task = lambda: function(self, *args[1:])

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
