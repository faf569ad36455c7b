"""The client for programs without an event loop: the methods of the asynchronous one, run on a loop in a thread.

No method is written twice. Each is made from its asynchronous twin, with its signature and its documentation.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from coordinator.client.async_client import AsyncPodium
from coordinator.client.files import AsyncFiles
from coordinator.client.loop_thread import LoopThread
from coordinator.client.paging import AsyncPages
from coordinator.client.run import AsyncRun

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from coordinator.client.results import Receipt

__all__ = ["Files", "Pages", "Podium", "Run"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_A = TypeVar("_A")
_B = TypeVar("_B")


class _Twin(Generic[_A]):
    """An object whose methods run those of an asynchronous one on a loop in a thread."""

    def __init__(self, twin: _A, loop: LoopThread) -> None:
        self._twin = twin
        self._loop = loop


def _waiting(
    method: Callable[Concatenate[_A, _P], Coroutine[Any, Any, _R]],
) -> Callable[Concatenate[_Twin[_A], _P], _R]:
    """Return a method that waits for the result of an asynchronous one."""

    @wraps(method)
    def call(self: _Twin[_A], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._loop.run(method(self._twin, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[_A, _P], AsyncGenerator[_R]],
) -> Callable[Concatenate[_Twin[_A], _P], Iterator[_R]]:
    """Return a method that yields what an asynchronous one does."""

    @wraps(method)
    def call(self: _Twin[_A], /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_R]:
        return self._loop.iterate(method(self._twin, *args, **kwargs))

    return call


def _making(
    method: Callable[Concatenate[_A, _P], _B], twin_of: Callable[[_B, LoopThread], _R]
) -> Callable[Concatenate[_Twin[_A], _P], _R]:
    """Return a method that returns the twin of the object that another one returns."""

    @wraps(method)
    def call(self: _Twin[_A], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return twin_of(method(self._twin, *args, **kwargs), self._loop)

    return call


def _opening(
    method: Callable[Concatenate[_A, _P], Coroutine[Any, Any, _B]], twin_of: Callable[[_B, LoopThread], _R]
) -> Callable[Concatenate[_Twin[_A], _P], _R]:
    """Return a method that waits for an object and returns its twin."""

    @wraps(method)
    def call(self: _Twin[_A], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return twin_of(self._loop.run(method(self._twin, *args, **kwargs)), self._loop)

    return call


class Run(_Twin[AsyncRun]):
    """One message that is durably in its agent's inbox; see `AsyncRun`."""

    @property
    def agent(self) -> str:
        """The agent's address."""
        return self._twin.agent

    @property
    def message_id(self) -> str:
        """The message; the id of the run."""
        return self._twin.message_id

    @property
    def receipt(self) -> Receipt | None:
        """Its receipt; ``None`` of a resumed run."""
        return self._twin.receipt

    @property
    def position(self) -> str:
        """As `AsyncRun.position`."""
        return self._twin.position

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    close = _waiting(AsyncRun.close)
    events = _iterating(AsyncRun.events)
    answer = _waiting(AsyncRun.answer)
    text = _waiting(AsyncRun.text)
    cancel = _waiting(AsyncRun.cancel)
    to_readable_stream = _iterating(AsyncRun.to_readable_stream)


class Files(_Twin[AsyncFiles]):
    """The committed files of one agent; see `AsyncFiles`."""

    read = _waiting(AsyncFiles.read)
    chunks = _iterating(AsyncFiles.chunks)
    list = _waiting(AsyncFiles.list)
    history = _waiting(AsyncFiles.history)
    upload = _waiting(AsyncFiles.upload)
    delete = _waiting(AsyncFiles.delete)


class Pages(_Twin[AsyncPages]):
    """Lists of a home, a page at a time; see `AsyncPages`."""

    agents = _waiting(AsyncPages.agents)
    inbox = _waiting(AsyncPages.inbox)
    reminders = _waiting(AsyncPages.reminders)
    artifacts = _waiting(AsyncPages.artifacts)
    file_history = _waiting(AsyncPages.file_history)


class Podium(_Twin[AsyncPodium]):
    """A client of one home for programs without an event loop; see `AsyncPodium`, whose arguments it takes.

    Several threads may share it. Its loop runs in a thread that ends with `close`, or with the program.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        key: str | None = None,
        home: Path | str | None = None,
        reconnect_s: float | None = None,
    ) -> None:
        super().__init__(AsyncPodium(url=url, key=key, home=home, reconnect_s=reconnect_s), LoopThread())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end the thread. Messages that were sent are handled nevertheless."""
        if not self._loop.is_closed:
            self._loop.run(self._twin.close())
            self._loop.close()

    metrics = _waiting(AsyncPodium.metrics)
    send = _waiting(AsyncPodium.send)
    stream = _opening(AsyncPodium.stream, Run)
    resume = _making(AsyncPodium.resume, Run)
    ask = _waiting(AsyncPodium.ask)
    message = _waiting(AsyncPodium.message)
    cancel = _waiting(AsyncPodium.cancel)
    inbox = _waiting(AsyncPodium.inbox)
    reminders = _waiting(AsyncPodium.reminders)
    cancel_reminder = _waiting(AsyncPodium.cancel_reminder)
    retry = _waiting(AsyncPodium.retry)
    drop = _waiting(AsyncPodium.drop)
    agents = _iterating(AsyncPodium.agents)
    pages = _making(AsyncPodium.pages, Pages)
    agent = _waiting(AsyncPodium.agent)
    delete = _waiting(AsyncPodium.delete)
    fork = _waiting(AsyncPodium.fork)
    rewind = _waiting(AsyncPodium.rewind)
    fold = _waiting(AsyncPodium.fold)
    erase = _waiting(AsyncPodium.erase)
    export = _iterating(AsyncPodium.export)
    import_archive = _waiting(AsyncPodium.import_archive)
    why = _waiting(AsyncPodium.why)
    nodes = _waiting(AsyncPodium.nodes)
    passivate = _waiting(AsyncPodium.passivate)
    verify = _waiting(AsyncPodium.verify)
    events = _iterating(AsyncPodium.events)
    state = _waiting(AsyncPodium.state)
    follow_state = _iterating(AsyncPodium.follow_state)
    diff = _waiting(AsyncPodium.diff)
    files = _making(AsyncPodium.files, Files)
    artifacts = _waiting(AsyncPodium.artifacts)
    artifact = _waiting(AsyncPodium.artifact)
    find_artifact = _waiting(AsyncPodium.find_artifact)
