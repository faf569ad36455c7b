"""The client for programs without an event loop: the methods of the asynchronous one, run on a loop in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from coordinator.client.async_client import AsyncPodium
from coordinator.client.files import AsyncFiles
from coordinator.client.loop_thread import LoopThread
from coordinator.client.paging import Lists, Pages
from coordinator.client.requests import Requests
from coordinator.client.run import AsyncRun
from coordinator.client.twin import Twin, iterating, making, opening, waiting
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from coordinator.operations.objects import Receipt

__all__ = ["Files", "Pages", "Podium", "Run"]

A = TypeVar("A")


class Run(Twin):
    """One message that is durably in its agent's inbox; see `AsyncRun`."""

    _twin: AsyncRun

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
        """Its receipt; ``None`` of one that is followed later."""
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

    close = waiting(AsyncRun.close)
    events = iterating(AsyncRun.events)
    answer = waiting(AsyncRun.answer)
    text = waiting(AsyncRun.text)
    cancel = waiting(AsyncRun.cancel)
    to_readable_stream = iterating(AsyncRun.to_readable_stream)


class Files(Twin):
    """The committed files of one agent; see `AsyncFiles`."""

    read = waiting(AsyncFiles.read)
    chunks = iterating(AsyncFiles.chunks)
    list = waiting(AsyncFiles.list)
    history = waiting(AsyncFiles.history)
    upload = waiting(AsyncFiles.upload)
    delete = waiting(AsyncFiles.delete)


class Podium(Requests, Lists):
    """A client of one home for programs without an event loop; see `AsyncPodium`, whose arguments it takes.

    Several threads may share it. Its loop runs in a thread that ends with `close`, or with the program.
    """

    _twin: AsyncPodium

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

    def of(
        self,
        agent: type[A],
        key: str,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy | str = BusyPolicy.ENQUEUE,
    ) -> type[A]:
        """Return the handlers of an agent; see `AsyncPodium.of`. Each waits for its result.

        Type checkers see the class, whose handlers have that signature; it is an object with the handlers only.
        """
        from podium.agent.remote import RemoteHandlers  # noqa: PLC0415  pydantic, and the agent's code is there

        handlers: Any = self._twin.of(agent, key, timeout=timeout, idempotency_key=idempotency_key, when_busy=when_busy)
        waits = RemoteHandlers(agent, lambda spec, argument: self._loop.run(getattr(handlers, spec.name)(argument)))
        return cast("type[A]", waits)

    metrics = waiting(AsyncPodium.metrics)
    send = waiting(AsyncPodium.send)
    stream = opening(AsyncPodium.stream, Run)
    follow = making(AsyncPodium.follow, Run)
    ask = waiting(AsyncPodium.ask)
    export = iterating(AsyncPodium.export)
    events = iterating(AsyncPodium.events)
    follow_state = iterating(AsyncPodium.follow_state)
    files = making(AsyncPodium.files, Files)
    artifact = waiting(AsyncPodium.artifact)
    artifact_chunks = iterating(AsyncPodium.artifact_chunks)
