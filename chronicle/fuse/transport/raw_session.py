"""One FUSE mount served by one thread, over the kernel's own protocol.

The loop waits for a request, reads it into a reused buffer, executes it (`chronicle.fuse.transport.requests`) and
writes the answer: three system calls a request. Requests are answered in the order of their arrival, except those that
need a blob of a remote store: these are parked until it is here (`chronicle.fuse.transport.parked_requests`).

Against pyfuse3 this saves the work of a general library, and negotiates features that the library does not offer: the
server drops set-user-id bits and capabilities of written files (``HANDLE_KILLPRIV_V2``), without which the kernel
requests ``security.capability`` before each write; files change through the kernel only (``EXPLICIT_INVAL_DATA``);
closing a file that was only read sends no request; and the kernel aborts the connection when a request is not answered
(Linux 6.15).
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from chronicle.blobs.port import Pending
from chronicle.errors import Unavailable
from chronicle.fuse.deadlines import fetched_of
from chronicle.fuse.transport import device, wire
from chronicle.fuse.transport.deferred_requests import DeferredRequests
from chronicle.fuse.transport.parked_requests import ParkedRequests
from chronicle.fuse.transport.requests import Requests
from chronicle.fuse.transport.revoke import GONE
from chronicle.fuse.transport.session import Session
from chronicle.fuse.transport.wire import Init, Notify, Opcode

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.fuse.deadlines import FetchedBlobs
    from chronicle.fuse.served.filesystem import FileSystem
    from chronicle.fuse.transport.requests import Header
    from chronicle.fuse.watchdog import Heartbeat

__all__ = ["RawSession"]

log = logging.getLogger(__name__)

_LONGEST_READ: Final = 1024 * 1024
"""Bytes; the kernel's limit unless ``fs.fuse.max_pages_limit`` is raised."""
_LONGEST_WRITE: Final = 512 * 1024
"""Bytes. With 1 MiB a large file written in order takes up to a tenth longer: a request then exceeds a CPU's second
cache."""
_FIRST: Final = mmap.PAGESIZE - 80
"""Offset of a request in the buffer: the data of a write (after 80 bytes) then starts at a page boundary."""
_BUFFER_BYTES: Final = mmap.PAGESIZE + _LONGEST_WRITE + mmap.PAGESIZE
"""The kernel refuses reads with less room than the longest request."""
_RESIDENT_BYTES: Final = 128 * 1024
"""Pages of the buffer beyond this are released after the last longer request: there may be hundreds of servers."""
_BACKGROUND: Final = 64
_CONGESTION_THRESHOLD: Final = 48
_REQUEST_TIMEOUT_S: Final = 1200
"""The kernel aborts the connection after this: longer than a seal may defer requests
(`chronicle.fuse.transport.interleave.LONGEST_S`). The watchdog finds a server that hangs much earlier
(`chronicle.fuse.watchdog`); this covers a zygote that hangs too, or is gone."""
_WITHDRAWN: Final = (errno.EAGAIN, errno.ENOENT, errno.EINTR)
"""Errors of a read whose request was withdrawn: its caller was killed."""
_NOT_WANTED: Final = (errno.ENOENT, errno.EINTR)
"""Errors of an answer that nobody waits for any more, as after an unmount: the next read tells."""
_FEATURES: Final = int(
    Init.ASYNC_READ
    | Init.ATOMIC_O_TRUNC
    | Init.BIG_WRITES
    | Init.DO_READDIRPLUS
    | Init.READDIRPLUS_AUTO
    | Init.PARALLEL_DIROPS
    | Init.MAX_PAGES
    | Init.CACHE_SYMLINKS
    | Init.EXPLICIT_INVAL_DATA
    | Init.HANDLE_KILLPRIV_V2
    | Init.INIT_EXT
    | Init.REQUEST_TIMEOUT
)
"""A plain number: arithmetic with enum members would cost each forked server memory of its own."""
_INIT_EXT: Final = int(Init.INIT_EXT)


class RawSession(Session[bytes]):
    """A session whose requests are bytes.

    Args:
        filesystem: executes the requests.
        mountpoint, heartbeat, source, allow_other: see `Session`.
    """

    def __init__(
        self, filesystem: FileSystem, mountpoint: Path, heartbeat: Heartbeat, *, source: str, allow_other: bool
    ) -> None:
        self._parked: ParkedRequests
        super().__init__(
            mountpoint, heartbeat, ParkedRequests(), filesystem.parking, source=source, allow_other=allow_other
        )
        self._buffer = mmap.mmap(-1, _BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._into = [memoryview(self._buffer)[_FIRST:]]
        self._requests = Requests(filesystem, self._buffer, _FIRST)
        filesystem.notify_attributes = self._notify_attributes
        self._deferred = DeferredRequests()

    def mount(self) -> None:
        """Mount. The kernel queues requests from now on; `run` answers them.

        Raises:
            Unavailable: the kernel or ``fusermount3`` refused.
        """
        self._device = device.mount(self._mountpoint, self._source, allow_other=self._allow_other)

    def _serve(self) -> None:
        fd, wait, into, buffer = self._device, self._poll.wait, self._into, self._buffer
        unpack, pack = wire.IN_HEADER.unpack_from, wire.OUT_HEADER.pack
        answer, header_bytes = self._requests.answer, wire.OUT_HEADER.size
        policy = self._policy
        has_grown = False
        while wait(fd):
            try:
                length = os.readv(fd, into)
            except OSError as error:
                if error.errno in GONE:
                    return
                if error.errno in _WITHDRAWN:
                    continue
                raise
            header = unpack(buffer, _FIRST)
            opcode = header[1]
            if opcode in _SPECIAL:
                self._serve_special(header)
                continue
            if policy is not None:
                policy.begin()
            try:
                code, body = answer(header)
            except Pending as pending:
                self._park(self._buffer[_FIRST : _FIRST + length], fetched_of(pending), length)
                continue
            finally:
                if policy is not None:
                    policy.end()
            try:
                os.write(fd, pack(header_bytes + len(body), -code, header[2]) + body)
            except OSError as error:
                if error.errno not in _NOT_WANTED:
                    raise
            if length > _RESIDENT_BYTES:
                has_grown = True
            elif has_grown:
                buffer.madvise(mmap.MADV_DONTNEED, _RESIDENT_BYTES)
                has_grown = False

    def _serve_one(self) -> bool:
        """Read a request during a command, and answer or defer it; False if no more are to be read."""
        try:
            length = os.readv(self._device, self._into)
        except OSError as error:
            if error.errno in GONE:  # all callers were told that their requests failed
                self._deferred = DeferredRequests()
            return error.errno in _WITHDRAWN  # on another error the main loop fails too
        header = wire.IN_HEADER.unpack_from(self._buffer, _FIRST)
        try:
            if header[1] == Opcode.INTERRUPT:
                self._handle_interrupt()
            elif header[1] in _SPECIAL:
                self._serve_special(header)
            elif self._requests.is_read_only(header):
                self._execute(header, length)
            else:
                self._deferred.add(self._buffer[_FIRST : _FIRST + length])
        except Exception as error:  # noqa: BLE001 - not the command's; raised after it
            self._broken = error
            return False
        return not self._deferred.is_full

    def _fail_killed_callers(self) -> None:
        """Answer the requests of callers that are being killed or terminated with EINTR."""
        for number in self._deferred.take_killed():
            self._fail(number, errno.EINTR)
        for number in self._parked.take_terminated():
            self._fail(number, errno.EINTR)
        self._update_parking()

    def _handle_interrupt(self) -> None:
        """Execute INTERRUPT: the caller of a request has a signal pending."""
        number = self._requests.interrupted()
        self._deferred.interrupt(number)
        self._parked.interrupt(number)
        if self._deferred or self._parked:
            self._fail_killed_callers()

    def _replay_deferred(self) -> None:
        """Execute the requests that were deferred during a command."""
        self._in_command = False
        if self._broken is not None:
            raise self._broken
        while (request := self._deferred.take()) is not None:
            self._buffer[_FIRST : _FIRST + len(request)] = request
            self._poll.begin_request()
            self._execute(wire.IN_HEADER.unpack_from(request), len(request))
        self._buffer.madvise(mmap.MADV_DONTNEED, _RESIDENT_BYTES)

    # -- parked requests -----------------------------------------------------------------------------

    def _execute_parked(self, request: bytes, fetched: FetchedBlobs) -> None:
        """Execute a request whose read has ended, or whose deadline has expired, again."""
        fetched.collect()
        header = wire.IN_HEADER.unpack_from(request)
        self._buffer[_FIRST : _FIRST + len(request)] = request
        try:
            if self._in_command and not self._requests.is_read_only(header):
                self._deferred.add(request)
            else:
                self._execute(header, len(request), fetched)
        except Exception as error:
            if not self._in_command:
                raise
            self._broken = error  # not the command's; raised after it

    def _check_waiting(self) -> None:
        """Fail the requests of killed callers, and resume parked requests that are due."""
        self._fail_killed_callers()
        super()._check_waiting()

    def _fail_waiting(self) -> None:
        """Fail deferred and parked requests, which will not be executed: dropping pages would wait for them."""
        while (request := self._deferred.take()) is not None:
            self._fail(wire.IN_HEADER.unpack_from(request)[2], errno.ENOTCONN)
        for request in self._end_parking():
            self._fail(wire.IN_HEADER.unpack_from(request)[2], errno.ENOTCONN)

    def _fail(self, number: int, code: int) -> None:
        with suppress(OSError):  # the connection was aborted
            os.write(self._device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size, -code, number))

    def _execute(self, header: Header, length: int, fetched: FetchedBlobs | None = None) -> None:
        """Answer the request of ``length`` bytes in the buffer, or park it.

        Args:
            header: its header.
            length: bytes, with the header.
            fetched: the blobs that earlier attempts have read.
        """
        if self._policy is not None:
            self._policy.begin(fetched)
        try:
            code, body = self._requests.answer(header)
        except Pending as pending:
            self._park(self._buffer[_FIRST : _FIRST + length], fetched_of(pending), length)
            return
        finally:
            if self._policy is not None:
                self._policy.end()
        self._reply(header, code, body)

    def _serve_special(self, header: Header) -> None:
        """Handle a request about the connection, or one that has no answer."""
        if header[1] == Opcode.INIT:
            self._reply(header, 0, self._negotiate())
        elif header[1] == Opcode.INTERRUPT:
            self._handle_interrupt()
        else:
            self._requests.forget(header)

    def _negotiate(self) -> bytes:
        """Return the answer to INIT: the version, features and limits of the connection."""
        body = _FIRST + wire.IN_HEADER.size
        major, minor, ahead, flags = wire.INIT_IN.unpack_from(self._buffer, body)
        if major > wire.MAJOR:  # it sends INIT again, in this version
            return wire.INIT_OUT.pack(wire.MAJOR, wire.MINOR, *([0] * 11))
        if major < wire.MAJOR or minor < wire.OLDEST_MINOR:
            raise Unavailable(f"this kernel speaks version {major}.{minor} of FUSE; 7.31, Linux 5.4, is needed")
        if flags & _INIT_EXT:
            (more,) = wire.FLAGS.unpack_from(self._buffer, body + wire.INIT_IN.size)
            flags |= more << 32
        features = flags & _FEATURES
        return wire.INIT_OUT.pack(
            wire.MAJOR,
            min(minor, wire.MINOR),
            ahead,
            features & 0xFFFFFFFF,
            _BACKGROUND,
            _CONGESTION_THRESHOLD,
            _LONGEST_WRITE,
            1,
            _LONGEST_READ // mmap.PAGESIZE,
            0,
            features >> 32,
            0,
            _REQUEST_TIMEOUT_S,
        )

    def _reply(self, header: Header, code: int, body: bytes) -> None:
        try:
            os.write(self._device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(body), -code, header[2]) + body)
        except OSError as error:
            if error.errno not in _NOT_WANTED:
                raise

    def _notify_attributes(self, inode: int) -> None:
        """Invalidate the kernel's cached attributes. Waits for no request, so the serving thread may call it."""
        self._notify(inode, -1)

    def _notify(self, inode: int, offset: int) -> None:
        self._send_notification(Notify.INVAL_INODE, wire.NOTIFY_INODE.pack(inode, offset, 0))

    def _send_notification(self, what: Notify, body: bytes) -> None:
        with suppress(OSError):  # the kernel has forgotten it
            os.write(self._device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(body), what, 0) + body)

    def _drop_name(self, parent: int, name: bytes) -> None:
        self._send_notification(Notify.INVAL_ENTRY, wire.NOTIFY_ENTRY.pack(parent, len(name), 0) + name + b"\0")

    def _drop_inode(self, inode: int) -> None:
        self._notify(inode, 0)

    def close(self) -> None:
        """Close the connection to the kernel; users of the mount get ENOTCONN. It stays mounted.

        Unmounting here could wait for pages of a mapping to be written back to this process, which has stopped serving.
        """
        if self._device >= 0:
            os.close(self._device)
            self._device = -1
        self._parked.close()
        self._requests.close()
        self._into[0].release()
        self._buffer.close()


_SPECIAL: Final = frozenset(map(int, (Opcode.INIT, Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT)))
