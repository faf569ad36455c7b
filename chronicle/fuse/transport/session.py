"""A mount and the loop that serves it: the part that both transports share.

A transport reads, executes and answers requests; this decides when. Callbacks of watched descriptors run between two
requests, in the same thread. While one of them interleaves requests, those that change something are deferred until it
has ended.

Requests that wait for a blob of a remote store are parked (`chronicle.fuse.transport.parked_requests`). Three things
follow the queue: the policy parks further requests while there is room, the poll watches the queue from the first
parked request on, and a timer checks it while it is not empty.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from chronicle.fuse.transport.request_poll import RequestPoll
from chronicle.fuse.transport.revoke import drop_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from chronicle.fuse.deadlines import FetchedBlobs, ParkingPolicy
    from chronicle.fuse.transport.interleave import Interleaver
    from chronicle.fuse.transport.parked_requests import ParkedQueue
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["Session"]

log = logging.getLogger(__name__)

R = TypeVar("R")

_CHECK_INTERVAL_S: Final = 0.5
"""Interval at which parked requests are checked for expired deadlines and killed callers."""


class Session(ABC, Generic[R]):
    """A mount and its loop. The caller mounts, runs and closes in one thread, once per process.

    Args:
        mountpoint: an existing directory.
        heartbeat: records the server's activity.
        parked: the parked requests, in the transport's own form.
        policy: decides which requests may be parked; ``None`` for a store on this node, whose reads are not waited for.
        source: the mount's device in ``df`` and mountinfo.
        allow_other: admit users other than the mounting one, subject to the files' modes. Needs root or
            ``user_allow_other`` in ``/etc/fuse.conf``.
    """

    def __init__(
        self,
        mountpoint: Path,
        heartbeat: Heartbeat | None,
        parked: ParkedQueue[R],
        policy: ParkingPolicy | None,
        *,
        source: str,
        allow_other: bool,
    ) -> None:
        self._mountpoint = mountpoint
        self._source = source
        self._allow_other = allow_other
        self._device = -1
        """The connection's descriptor; negative before the first request."""
        self._poll = RequestPoll(heartbeat)
        self._parked = parked
        self._policy = policy
        self._is_queue_watched = self._is_timed = False
        self._in_command = False
        """Whether a command interleaves requests, or those that it deferred are still to be executed."""
        self._broken: Exception | None = None
        """A failure during a command that is not the command's; raised after it."""

    @abstractmethod
    def mount(self) -> None:
        """Mount. The kernel queues requests from now on; `run` answers them.

        Raises:
            Unavailable: the kernel or ``fusermount3`` refused.
        """

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, between requests, each time a descriptor is readable or hung up. The callback must not raise."""
        self._poll.add(fd, callback)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor. Call this before closing it."""
        self._poll.remove(fd)

    def stop(self) -> None:
        """Make `run` return before it reads another request. For callbacks."""
        self._poll.stop()

    def run(self) -> None:
        """Serve until the mount is unmounted from outside or `stop` is called.

        Raises:
            Exception: an operation or a callback raised it against its contract, or the device failed; it is logged.
                Later requests fail when the session is closed, which the caller does next.
        """
        if self._policy is not None:
            self._policy.enabled = True
        try:
            self._serve()
        except Exception:
            log.exception("the mount failed: %s", self._mountpoint)
            raise
        finally:
            self._fail_waiting()

    def interleave(self) -> Interleaver:
        """Serve requests that change nothing while a callback runs, and defer the others. For callbacks.

        Deferred requests are executed after the callbacks of this round; they fail if the session is to end.
        """
        self._in_command = True
        extra = self._watched_queue() if self._policy is not None else None
        return self._poll.interleave(self._serve_one, self._check_waiting, self._replay_deferred, extra)

    def invalidate(self, names: Iterable[tuple[int, bytes]], inodes: Iterable[int], done: Callable[[], None]) -> None:
        """Make the kernel drop cached names (directory's inode, name), and the cached attributes and pages of inodes.

        For changes that did not come through the kernel. Requests are served meanwhile, since dropping a name or a page
        waits for the requests on it; ``done`` is called at the end.
        """

        def drop() -> None:
            for parent, name in names:
                self._drop_name(parent, name)
            for inode in inodes:
                self._drop_inode(inode)

        self._poll.run_in_thread(drop, done)

    def drop_pages(self, inodes: Iterable[int]) -> None:
        """Make the kernel drop the cached pages of inodes; see `revoke`. Only for a session that is stopped."""
        if self._device >= 0:
            drop_pages(self._device, inodes, self._drop_inode)

    @abstractmethod
    def close(self) -> None:
        """Close the connection to the kernel; users of the mount get ENOTCONN. It stays mounted.

        Unmounting here could wait for pages of a mapping to be written back to this process, which has stopped serving.
        """

    @abstractmethod
    def _serve(self) -> None:
        """Answer requests until the session ends."""

    @abstractmethod
    def _serve_one(self) -> bool:
        """Read a request during a command, and answer or defer it; False if no more are to be read."""

    @abstractmethod
    def _replay_deferred(self) -> None:
        """Execute the requests that were deferred during a command."""

    # -- parked requests -----------------------------------------------------------------------------------------

    def _watched_queue(self) -> tuple[int, Callable[[], None]]:
        """Return the descriptor that is readable when a parked request may be due, and its callback."""
        if not self._is_queue_watched:  # on first use: each descriptor in the poll costs every request something
            self._is_queue_watched = True
            self._poll.add(self._parked.fileno(), self._resume_parked)
        return self._parked.fileno(), self._resume_parked

    def _park(self, request: R, fetched: FetchedBlobs, size: int = 0) -> None:
        """Park a request of ``size`` bytes until the read that it waits for has ended, or its deadline has expired."""
        self._watched_queue()
        self._parked.add(request, fetched, size)
        self._update_parking()

    def _resume_parked(self) -> None:
        """Execute the requests that are due."""
        with self._poll.resuming():
            for request, fetched in self._parked.take_due():
                self._poll.begin_request()
                self._execute_parked(request, fetched)
        self._update_parking()

    def _update_parking(self) -> None:
        """Adapt policy and timer after requests were added to the queue or removed."""
        if self._policy is not None:
            self._policy.enabled = not self._parked.is_full
        if self._is_timed != bool(self._parked):
            self._is_timed = not self._is_timed
            self._poll.call_every(_CHECK_INTERVAL_S, self._check_waiting if self._is_timed else None)

    def _end_parking(self) -> list[R]:
        """Park no more; remove and return the parked requests, which the caller fails."""
        if self._policy is not None:
            self._policy.enabled = False
        return [request for request, _ in self._parked.take_all()]

    @abstractmethod
    def _execute_parked(self, request: R, fetched: FetchedBlobs) -> None:
        """Execute a request again, with the blobs that it has read; it may be parked again."""

    def _check_waiting(self) -> None:
        """Resume the parked requests that are due."""
        if self._parked:
            self._resume_parked()

    @abstractmethod
    def _fail_waiting(self) -> None:
        """Fail deferred and parked requests, which will not be executed: dropping pages would wait for them."""

    @abstractmethod
    def _drop_name(self, parent: int, name: bytes) -> None:
        """Make the kernel drop a cached name, unless it has forgotten it."""

    @abstractmethod
    def _drop_inode(self, inode: int) -> None:
        """Make the kernel drop the cached attributes and pages of an inode, unless it has forgotten it."""
