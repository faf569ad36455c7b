"""The part of trio that pyfuse3 uses, for one thread without an event loop.

`chronicle.fuse.transport.pyfuse3_session` sets ``pyfuse3.trio`` to a `TrioShim`. A session loop of pyfuse3 is a
coroutine; it is suspended in three places only: where a helper loop waits for its next request, at the `Gate`, and in a
`ParkedRead`.

One promise needs the shim: requests that change nothing are served *during* a seal
(`chronicle.fuse.transport.interleave`). A seal is one synchronous call into the layer, and it serves requests from
within its own stack. A running event loop cannot be entered again there: ``trio.run`` and ``asyncio.run`` both refuse.
The seal would need a thread of its own, and hand the layer back and forth with the event loop's thread, while a layer
belongs to one thread and has no locks. Speed alone would not be enough: stat of a loopback on one CPU of a busy machine
took 156 to 163 µs with the shim, 246 to 271 µs with trio and 125 to 302 µs with asyncio, in two runs. pyfuse3's
asyncio support also drops the exceptions of its child tasks and leaves them running when it is cancelled.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Self

import pyfuse3

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from chronicle.fuse.deadlines import FetchedBlobs

__all__ = ["Gate", "ParkedRead", "TrioShim"]


class Gate:
    """Suspends operations that change something while a command runs: they await it if it is shut."""

    def __init__(self) -> None:
        self.shut = False
        self.refuses = False
        """Whether the session has ended: suspended operations fail."""

    def __await__(self) -> Generator[Gate, None, None]:
        yield self
        if self.refuses:
            raise pyfuse3.FUSEError(errno.ENOTCONN)


class ParkedRead:
    """Suspends an operation until a blob that it needs is read (`chronicle.fuse.transport.parked_requests`)."""

    def __init__(self, gate: Gate, fetched: FetchedBlobs) -> None:
        self._gate = gate
        self.fetched = fetched

    def __await__(self) -> Generator[ParkedRead, None, None]:
        yield self
        if self._gate.refuses:
            raise pyfuse3.FUSEError(errno.ENOTCONN)


class TrioShim:
    """Stands in for the module ``trio``. The main loop never suspends to wait; helper loops do, during a command.

    Args:
        wait_for_request: waits until a request can be read from a descriptor; False ends the session.
        park: takes over a session loop whose operation waits for a blob.
    """

    class ClosedResourceError(Exception):
        """Raised from `wait_readable` to end pyfuse3's loop."""

    class Lock:
        """A lock that is always free: there is one task."""

        async def __aenter__(self) -> None:
            return None

        async def __aexit__(self, *_: object) -> None:
            return None

    name = "chronicle"

    def __init__(
        self,
        wait_for_request: Callable[[int], bool],
        park: Callable[[Coroutine[Any, Any, None], ParkedRead], None],
    ) -> None:
        self._wait_for_request = wait_for_request
        self.lowlevel = self
        self.from_thread = self
        self._nursery = _Nursery(park)
        self._is_helping = False
        """Whether a helper loop runs, during a command; the main loop, which received the command, stands still."""
        self._may_read = False

    def current_trio_token(self) -> str:
        """Return a token; pyfuse3 only stores it."""
        return self.name

    def current_task(self) -> TrioShim:
        """Return an object with a name; pyfuse3 only logs it."""
        return self

    async def wait_readable(self, fd: int) -> None:
        """Wait for a request: in the main loop within this call, in a helper loop suspended until `resume`."""
        if not self._is_helping:
            if not self._wait_for_request(fd):
                raise self.ClosedResourceError
            return
        if not self._may_read:
            await _Pause()
        if not self._may_read:
            raise self.ClosedResourceError
        self._may_read = False

    def notify_closing(self, fd: int) -> None:
        """Do nothing: no other task waits for the descriptor."""

    def open_nursery(self) -> _Nursery:
        """Return the nursery of the session loop."""
        return self._nursery

    def new_loop(self) -> Coroutine[Any, Any, None]:
        """Return a further session loop, to be a helper."""
        return self._nursery.new_loop()

    def resume(self, loop: Coroutine[Any, Any, None]) -> Gate | ParkedRead | None:
        """Let a helper loop read one request; return the gate or read in which its operation was suspended, if any.

        Raises:
            StopIteration: the session is over.
        """
        self._may_read = self._is_helping = True
        try:
            waits = loop.send(None)
            return waits if isinstance(waits, Gate | ParkedRead) else None
        finally:
            self._may_read = self._is_helping = False

    def finish(self, loop: Coroutine[Any, Any, None]) -> Gate | ParkedRead | None:
        """Run a helper loop to its end, with the operation that is suspended in it.

        Returns:
            the gate or read in which the operation was suspended again, if it was.
        """
        self._is_helping = True
        try:
            while True:
                waits = loop.send(None)
                if isinstance(waits, Gate | ParkedRead):
                    return waits
        except StopIteration:
            return None
        finally:
            self._is_helping = False


class _Pause:
    """Suspends a helper loop until it is resumed."""

    def __await__(self) -> Generator[_Pause, None, None]:
        yield self


class _Nursery:
    """Runs the main session loop when its block ends, and a new one each time the previous one was parked."""

    def __init__(self, park: Callable[[Coroutine[Any, Any, None], ParkedRead], None]) -> None:
        self._park = park
        self._task: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def __aenter__(self) -> Self:
        return self

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object, **_: str) -> None:
        """Store the session loop. Requests of pyfuse3 for further ones are ignored: a helper makes it ask for some."""
        if self._task is None:
            self._task = lambda: function(self, *args[1:])

    def new_loop(self) -> Coroutine[Any, Any, None]:
        """Return a further session loop."""
        assert self._task is not None, "a session runs"
        return self._task()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or self._task is None:
            return
        while True:
            loop = self._task()
            try:
                waits = loop.send(None)
            except StopIteration:
                return
            except BlockingIOError as error:  # the request was withdrawn between poll and read
                if error.errno != errno.EAGAIN:
                    raise
            else:
                if not isinstance(waits, ParkedRead):
                    raise RuntimeError(  # noqa: TRY004 - a bug of an operation
                        "an operation suspended; the session has no event loop to resume it"
                    )
                self._park(loop, waits)
