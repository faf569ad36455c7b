"""What pyfuse3 uses of trio, for one thread without an event loop; see `chronicle.fuse.transport.pyfuse3_driver`.

A session loop of pyfuse3 is a coroutine. It is suspended in three places only: where a helper waits to be given a
request, at the `Gate`, and `Aside`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Self

import pyfuse3

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from chronicle.fuse.deadlines import Supply
    from chronicle.fuse.transport.pyfuse3_driver import MountSession

__all__ = ["Aside", "Gate", "Waits"]


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


class Aside:
    """Where an operation waits that needs a blob which is on its way (`chronicle.fuse.transport.parked_requests`)."""

    def __init__(self, gate: Gate, supply: Supply) -> None:
        self._gate = gate
        self.supply = supply

    def __await__(self) -> Generator[Aside, None, None]:
        yield self
        if self._gate.refuses:
            raise pyfuse3.FUSEError(errno.ENOTCONN)


class Waits:
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
        self._nursery = _Nursery(session)
        self._is_helping = False
        """Whether a loop runs that helps while a command runs; the one that the command came in by stands still."""
        self._may_read = False

    def current_trio_token(self) -> str:
        """Name the loop that there is not."""
        return self.name

    def current_task(self) -> Waits:
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

    def resume(self, loop: Coroutine[Any, Any, None]) -> Gate | Aside | None:
        """Let a helper read one request; return what that waits for, if it does.

        Raises:
            StopIteration: the session is over.
        """
        self._may_read = self._is_helping = True
        try:
            waits = loop.send(None)
            return waits if isinstance(waits, Gate | Aside) else None
        finally:
            self._may_read = self._is_helping = False

    def finish(self, loop: Coroutine[Any, Any, None]) -> Gate | Aside | None:
        """Let a helper end, and what waits in it happen before; return what that waits for if it has to wait again."""
        self._is_helping = True
        try:
            while True:
                waits = loop.send(None)
                if isinstance(waits, Gate | Aside):
                    return waits
        except StopIteration:
            return None
        finally:
            self._is_helping = False


class _Pause:
    """Suspends a loop until it is resumed."""

    def __await__(self) -> Generator[_Pause, None, None]:
        yield self


class _Nursery:
    """Runs the one task that is started in it, when the block ends; another one when it has to wait for a blob."""

    def __init__(self, session: MountSession) -> None:
        self._session = session
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
            loop = self._task()
            try:
                waits = loop.send(None)
            except StopIteration:
                return
            except BlockingIOError as error:  # the request was taken back between poll and read
                if error.errno != errno.EAGAIN:
                    raise
            else:
                if not isinstance(waits, Aside):
                    raise RuntimeError(  # noqa: TRY004 - a bug of an operation
                        "an operation suspended; the driver has no event loop to resume it"
                    )
                self._session.set_aside(loop, waits)
