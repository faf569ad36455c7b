"""One FUSE mount served by one thread, over the kernel's own protocol.

The loop waits for a request, reads it into a buffer that it keeps, has it answered
(`chronicle.fuse.transport.requests`) and writes the answer: three system calls a request. Requests are answered in the
order in which they come, but for those that need a blob of a far store: they are put aside until it is there
(`chronicle.fuse.transport.parked_requests`).

Against pyfuse3 this saves what a library for everyone must do, and can agree with the kernel on what a library does not
offer: that the server drops set-user-id bits and capabilities of written files (``HANDLE_KILLPRIV_V2``), without which
the kernel asks for ``security.capability`` before each write; that nothing changes files but the kernel
(``EXPLICIT_INVAL_DATA``); that closing a file that was only read need not be told; and that the kernel ends the
connection by itself when a request is not answered (Linux 6.15).
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
from chronicle.fuse.deadlines import supply_of
from chronicle.fuse.transport import device, wire
from chronicle.fuse.transport.deferred_requests import Kept
from chronicle.fuse.transport.parked_requests import LOOK_S, ParkedRequests
from chronicle.fuse.transport.poll import Watch
from chronicle.fuse.transport.requests import Requests
from chronicle.fuse.transport.revoke import GONE, drop_pages
from chronicle.fuse.transport.wire import Init, Notify, Opcode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from chronicle.fuse.deadlines import Supply
    from chronicle.fuse.served.filesystem import FileSystem
    from chronicle.fuse.transport.interleave import ServedMeanwhile
    from chronicle.fuse.transport.requests import Header
    from chronicle.fuse.watchdog import Pulse

__all__ = ["RawSession"]

log = logging.getLogger(__name__)

_LONGEST_READ: Final = 1024 * 1024
"""Bytes; the most that the kernel asks for without ``fs.fuse.max_pages_limit`` being raised."""
_LONGEST_WRITE: Final = 512 * 1024
"""Bytes. With 1 MiB a large file written in order takes up to a tenth longer: server and writer then pass on more than
a CPU's second cache holds."""
_FIRST: Final = mmap.PAGESIZE - 80
"""Where a request begins in the buffer, so that what is to be written (after 80 bytes) is at the start of a page."""
_BUFFER_BYTES: Final = mmap.PAGESIZE + _LONGEST_WRITE + mmap.PAGESIZE
"""The kernel gives no request to a reader who could not take the longest one."""
_KEPT_BYTES: Final = 128 * 1024
"""Pages of the buffer beyond this are given back after the last longer request: there may be hundreds of servers."""
_BACKGROUND: Final = 64
_JAM: Final = 48
_UNANSWERED_S: Final = 1200
"""After this the kernel aborts the connection: longer than a seal may take
(`chronicle.fuse.transport.interleave.LONGEST_S`), for which whoever changes something waits. A server that hangs is
found much earlier (`chronicle.fuse.watchdog`); this is for when its zygote hangs too, or is gone."""
_TAKEN_BACK: Final = (errno.EAGAIN, errno.ENOENT, errno.EINTR)
"""What reading says if no request is there any more: its caller was killed."""
_WANTED: Final = (
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


class RawSession:
    """A mount, and the loop that serves it. The caller mounts, runs and closes in one thread.

    Args:
        filesystem: answers the requests.
        mountpoint: an existing directory.
        pulse: says what is being done.
        source: what ``df`` and mountinfo show as the device.
        allow_other: let users other than the mounting one in, still subject to the files' modes. Needs root or
            ``user_allow_other`` in ``/etc/fuse.conf``.
    """

    def __init__(
        self, filesystem: FileSystem, mountpoint: Path, pulse: Pulse, *, source: str, allow_other: bool
    ) -> None:
        self._mountpoint = mountpoint
        self._source = source
        self._allow_other = allow_other
        self._buffer = mmap.mmap(-1, _BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._into = [memoryview(self._buffer)[_FIRST:]]
        self._requests = Requests(filesystem, self._buffer, _FIRST)
        filesystem.notify_attributes = self._notify_attributes
        self._watch = Watch(pulse)
        self._device = -1
        self._kept = Kept()
        self._parked: ParkedRequests | None = None
        """Requests that wait for blobs, once one did."""
        self._waiting = filesystem.waiting
        self._in_command = False
        """Whether a command runs that lets requests in, or what it kept is still to be carried out."""
        self._broken: Exception | None = None
        """What went wrong with the device while a command ran."""

    def mount(self) -> None:
        """Mount. The kernel queues requests from now on; `run` answers them.

        Raises:
            Unavailable: the kernel or ``fusermount3`` refused.
        """
        self._device = device.mount(self._mountpoint, self._source, allow_other=self._allow_other)

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, between requests, each time a descriptor is readable or hung up. It must not raise."""
        self._watch.add(fd, callback)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor; to be called before it is closed."""
        self._watch.remove(fd)

    def stop(self) -> None:
        """Make `run` return before it reads another request. For callbacks."""
        self._watch.stop()

    def run(self) -> None:
        """Serve until the mount is unmounted from outside or `stop` is called.

        Raises:
            Exception: what a callback raised and should not have, or the device; it is logged. What is asked from then
                on fails when the session is closed, which the caller does next.
        """
        if self._waiting is not None:
            self._waiting.is_on = True
        try:
            self._serve()
        except Exception:
            log.exception("the mount failed: %s", self._mountpoint)
            raise
        finally:
            self._refuse_kept()

    def _serve(self) -> None:
        fd, wait, into, buffer = self._device, self._watch.wait, self._into, self._buffer
        unpack, pack = wire.IN_HEADER.unpack_from, wire.OUT_HEADER.pack
        answer, header_bytes = self._requests.answer, wire.OUT_HEADER.size
        waiting = self._waiting
        grown = False
        while wait(fd):
            try:
                length = os.readv(fd, into)
            except OSError as error:
                if error.errno in GONE:
                    return
                if error.errno in _TAKEN_BACK:
                    continue
                raise
            header = unpack(buffer, _FIRST)
            opcode = header[1]
            if opcode in _SPECIAL:
                self._serve_special(header)
                continue
            if waiting is not None:
                waiting.begin()
            try:
                code, body = answer(header)
            except Pending as pending:
                self._park(self._buffer[_FIRST : _FIRST + length], pending)
                continue
            finally:
                if waiting is not None:
                    waiting.end()
            try:
                os.write(fd, pack(header_bytes + len(body), -code, header[2]) + body)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EINTR):
                    raise
            if length > _KEPT_BYTES:
                grown = True
            elif grown:
                buffer.madvise(mmap.MADV_DONTNEED, _KEPT_BYTES)
                grown = False

    def meanwhile(self) -> ServedMeanwhile:
        """Return what answers requests that change nothing while a callback runs, and keeps the others."""
        self._in_command = True
        also = (self._may_park().fileno(), self._resume_parked) if self._waiting is not None else None
        return self._watch.meanwhile(self._take, self._look, self._catch_up, also)

    def _take(self) -> bool:
        """Read a request while a command runs, and answer or keep it; False if no more are to be read."""
        try:
            length = os.readv(self._device, self._into)
        except OSError as error:
            if error.errno in GONE:  # whoever waits was told that it failed
                self._kept = Kept()
            return error.errno in _TAKEN_BACK  # else the loop finds it so, too
        header = wire.IN_HEADER.unpack_from(self._buffer, _FIRST)
        try:
            if header[1] == Opcode.INTERRUPT:
                self._interrupted()
            elif header[1] in _SPECIAL:
                self._serve_special(header)
            elif self._requests.changes_nothing(header):
                self._carry_out(header, length)
            else:
                self._kept.add(self._buffer[_FIRST : _FIRST + length])
        except Exception as error:  # noqa: BLE001 - it is not the command's, and raised when that has ended
            self._broken = error
            return False
        return not self._kept.is_full

    def _let_the_killed_go(self) -> None:
        """Answer the requests of those who wait for that to die."""
        for number in self._kept.take_killed():
            self._refuse(number, errno.EINTR)
        for number in self._parked.take_ending() if self._parked is not None else ():
            self._refuse(number, errno.EINTR)

    def _interrupted(self) -> None:
        """Do what the kernel's word asks that somebody got a signal who waits for a request."""
        number = self._requests.interrupted()
        self._kept.interrupt(number)
        if self._parked is not None:
            self._parked.interrupt(number)
        if self._kept or self._parked:
            self._let_the_killed_go()

    def _catch_up(self) -> None:
        """Carry out what was kept while a command ran."""
        self._in_command = False
        if self._broken is not None:
            raise self._broken
        while (request := self._kept.take()) is not None:
            self._buffer[_FIRST : _FIRST + len(request)] = request
            self._watch.get_on()
            self._carry_out(wire.IN_HEADER.unpack_from(request), len(request))
        self._buffer.madvise(mmap.MADV_DONTNEED, _KEPT_BYTES)

    # -- requests that wait for blobs -----------------------------------------------------------------------------

    def _park(self, request: bytes, pending: Pending) -> None:
        """Put a request aside until what it needs is here."""
        assert self._waiting is not None
        parked = self._may_park()
        parked.add(request, supply_of(pending), len(request))
        self._waiting.is_on = not parked.is_full
        self._watch.look_every(LOOK_S, self._look)

    def _may_park(self) -> ParkedRequests:
        if self._parked is None:
            self._parked = ParkedRequests()
            self._watch.add(self._parked.fileno(), self._resume_parked)
        return self._parked

    def _resume_parked(self) -> None:
        """Carry out again the requests that have what they waited for, or have waited too long."""
        parked, waiting = self._parked, self._waiting
        assert parked is not None
        assert waiting is not None
        with self._watch.between():
            for request, supply in parked.take_due():
                supply.take_in()
                header = wire.IN_HEADER.unpack_from(request)
                self._buffer[_FIRST : _FIRST + len(request)] = request
                self._watch.get_on()
                try:
                    if self._in_command and not self._requests.changes_nothing(header):
                        self._kept.add(request)
                    else:
                        self._carry_out(header, len(request), supply)
                except Exception as error:
                    if not self._in_command:
                        raise
                    self._broken = error  # it is not the command's, and raised when that has ended
        waiting.is_on = not parked.is_full
        if not parked:
            self._watch.look_every(0, None)

    def _look(self) -> None:
        """Let those go who wait to die, and what has waited too long."""
        self._let_the_killed_go()
        if self._parked:
            self._resume_parked()

    def _refuse_kept(self) -> None:
        """Fail what was kept and is not to be carried out any more: dropping pages would wait for it."""
        while (request := self._kept.take()) is not None:
            self._refuse(wire.IN_HEADER.unpack_from(request)[2], errno.ENOTCONN)
        if self._waiting is not None:
            self._waiting.is_on = False
        for request, _ in self._parked.take_all() if self._parked is not None else ():
            self._refuse(wire.IN_HEADER.unpack_from(request)[2], errno.ENOTCONN)

    def _refuse(self, number: int, code: int) -> None:
        with suppress(OSError):  # the connection was aborted
            os.write(self._device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size, -code, number))

    def _carry_out(self, header: Header, length: int, supply: Supply | None = None) -> None:
        """Answer a request of so many bytes that is in the buffer, or put it aside; it may have read something."""
        if self._waiting is not None:
            self._waiting.begin(supply)
        try:
            code, body = self._requests.answer(header)
        except Pending as pending:
            self._park(self._buffer[_FIRST : _FIRST + length], pending)
            return
        finally:
            if self._waiting is not None:
                self._waiting.end()
        try:
            os.write(self._device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(body), -code, header[2]) + body)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINTR):
                raise

    def _serve_special(self, header: Header) -> None:
        """Answer what is about the connection, or wants no answer."""
        if header[1] == Opcode.INIT:
            self._reply(header, self._agree())
        elif header[1] == Opcode.INTERRUPT:
            self._interrupted()
        else:
            self._requests.forget(header)

    def _agree(self) -> bytes:
        """Return what kernel and server agree on."""
        body = _FIRST + wire.IN_HEADER.size
        major, minor, ahead, flags = wire.INIT_IN.unpack_from(self._buffer, body)
        if major > wire.MAJOR:  # it asks again, in the version that is named
            return wire.INIT_OUT.pack(wire.MAJOR, wire.MINOR, *([0] * 11))
        if major < wire.MAJOR or minor < wire.OLDEST_MINOR:
            raise Unavailable(f"this kernel speaks version {major}.{minor} of FUSE; 7.31, Linux 5.4, is needed")
        if flags & Init.INIT_EXT:
            (more,) = wire.FLAGS.unpack_from(self._buffer, body + wire.INIT_IN.size)
            flags |= more << 32
        agreed = flags & _WANTED
        return wire.INIT_OUT.pack(
            wire.MAJOR,
            min(minor, wire.MINOR),
            ahead,
            agreed & 0xFFFFFFFF,
            _BACKGROUND,
            _JAM,
            _LONGEST_WRITE,
            1,
            _LONGEST_READ // mmap.PAGESIZE,
            0,
            agreed >> 32,
            0,
            _UNANSWERED_S,
        )

    def _reply(self, header: Header, body: bytes) -> None:
        os.write(self._device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(body), 0, header[2]) + body)

    def _notify_attributes(self, inode: int) -> None:
        """Make the kernel ask for attributes again. Waits for no request, so the serving thread may do it."""
        self._notify(inode, -1)

    def _notify(self, inode: int, offset: int) -> None:
        self._tell(Notify.INVAL_INODE, wire.NOTIFY_INODE.pack(inode, offset, 0))

    def _tell(self, what: Notify, body: bytes) -> None:
        with suppress(OSError):  # the kernel does not know it any more
            os.write(self._device, wire.OUT_HEADER.pack(wire.OUT_HEADER.size + len(body), what, 0) + body)

    def forget(self, names: Iterable[tuple[int, bytes]], inodes: Iterable[int], done: Callable[[], None]) -> None:
        """Make the kernel ask anew what names are, and what inodes have and hold.

        Serving goes on meanwhile, since dropping a name or a page waits for the requests that are about it.
        """

        def tell() -> None:
            for parent, name in names:
                self._tell(Notify.INVAL_ENTRY, wire.NOTIFY_ENTRY.pack(parent, len(name), 0) + name + b"\0")
            for inode in inodes:
                self._notify(inode, 0)

        self._watch.beside(tell, done)

    def forget_pages(self, inodes: Iterable[int]) -> None:
        """Make the kernel drop what it cached of inodes; see `drop_pages`. Only for a session that is stopped."""
        drop_pages(self._device, inodes, lambda inode: self._notify(inode, 0))

    def close(self) -> None:
        """End the connection to the kernel; whoever still uses the mount gets ENOTCONN. Unmounting is left to others.

        Unmounting here could wait for pages of a mapping to be written back, to us, who do not listen any more.
        """
        if self._device >= 0:
            os.close(self._device)
            self._device = -1
        if self._parked is not None:
            self._parked.close()
        self._requests.close()
        self._into[0].release()
        self._buffer.close()


_SPECIAL: Final = frozenset(map(int, (Opcode.INIT, Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT)))
