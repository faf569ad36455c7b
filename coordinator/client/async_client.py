"""The asynchronous client of a home: over HTTP, or of a home on this machine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import uuid4

from coordinator.client.backends.choosing import choose_backend
from coordinator.client.backends.port import Request
from coordinator.client.errors import AnswerTimeout, BadAnswer
from coordinator.client.files import AsyncFiles
from coordinator.client.paging import AsyncLists, items_of
from coordinator.client.reading import read_answer
from coordinator.client.requests import AsyncRequests
from coordinator.client.texts import address_of
from coordinator.operations import objects
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from coordinator.client.backends.port import Frames, Wire
    from coordinator.client.run import AsyncRun
    from coordinator.operations.objects import Answer, Event, Receipt, State

__all__ = ["AsyncPodium"]

A = TypeVar("A")


class AsyncPodium(AsyncRequests, AsyncLists):
    """A client of one home, for one event loop. It connects at its first use; its context closes it.

    An agent is named by its address, such as ``hello/alice``. A message is a JSON object, or a text, which stands for
    ``{"text": …}``.

    Args:
        url: the gateway's, such as ``http://127.0.0.1:8700``; by default ``$PODIUM_URL``.
        key: the API key; by default ``$PODIUM_KEY``, else the local key if ``url`` is that of this user's gateway of
            ``$PODIUM_HOME``, ``.podium`` or the project, also of one that starts later. Empty for none.
        home: the directory of a home on this machine, instead of a gateway; by default, without a URL, ``$PODIUM_HOME``
            or ``.podium``. Messages need its service, which ``podium up`` keeps.
        reconnect_s: time without a connection at which a stream, or a repeated request, fails with `Unreachable`; by
            default ``$PODIUM_RECONNECT_S``, 60 s.

    Raises:
        InvalidRequest: both ``url`` and ``home`` are given, or the URL is none.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        key: str | None = None,
        home: Path | str | None = None,
        reconnect_s: float | None = None,
    ) -> None:
        super().__init__(choose_backend(url, key, home, reconnect_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Messages that were sent are handled nevertheless."""
        await self._backend.close()

    async def metrics(self) -> Mapping[tuple[str, tuple[str, ...]], float | list[float]]:
        """Return the metrics of the home, by name and the values of their labels; docs/observability.md lists them.

        The value of a histogram is the sum of what was observed, followed by the number of observations in each bucket
        alone. While the service does not answer, only what waits in the journal is there.

        Raises:
            PermissionDenied: the key does not have the scope ``metrics``.
        """
        return await self._backend.metrics()

    # -- messages -------------------------------------------------------------------------------------------------

    async def send(
        self,
        agent: str,
        message: Mapping[str, Any] | str,
        *,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy | str = BusyPolicy.ENQUEUE,
    ) -> Receipt:
        """Send a message; return when it is durably in the agent's inbox.

        Args:
            idempotency_key: a name for the message: a second message with it is a repetition, and gets the receipt of
                the first. By default a new one, so that a repetition after a lost connection does no harm.
            when_busy: what happens if the agent is handling another message.

        Raises:
            RequestConflict: the agent is busy and the policy is ``reject``, or the idempotency key was used with
                another message.
            RateLimited: the inbox is full, or a limit is reached.
            ResourceNotFound: no agent type of that name.
        """
        key, policy = idempotency_key or uuid4().hex, BusyPolicy(when_busy).value
        return await self._backend.send(address_of(agent), _body(message), key, policy)

    async def stream(
        self,
        agent: str,
        message: Mapping[str, Any] | str,
        *,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy | str = BusyPolicy.ENQUEUE,
    ) -> AsyncRun:
        """Send a message; return its run, from which frames and answer are read, when it is durably in the inbox.

        Args:
            idempotency_key: as for `send`; of a repetition, the frames are those of the first message.
            when_busy: as for `send`.

        Raises:
            ClientError: as `send`.
        """
        from coordinator.client.run import AsyncRun  # noqa: PLC0415  readings need none

        key, policy = idempotency_key or uuid4().hex, BusyPolicy(when_busy).value
        address = address_of(agent)
        frames = self._backend.submit(address, _body(message), key, policy)
        try:
            first = await anext(frames, None)
            if first is None or first[1]["type"] != "accepted":
                raise BadAnswer("the stream of the message does not begin with its receipt")
            receipt = read_answer(objects.Receipt, {**first[1], "agent": agent})
        except BaseException:
            await frames.aclose()
            raise
        return AsyncRun(self._backend, address, receipt.message_id, receipt=receipt, opened=_with_first(first, frames))

    def follow(self, agent: str, message_id: str, *, after: str = "") -> AsyncRun:
        """Return the run of a message that was sent before, by this process or any other.

        Args:
            after: the `AsyncRun.position` after which its frames begin; by default they begin with the first one.
        """
        from coordinator.client.run import AsyncRun  # noqa: PLC0415

        return AsyncRun(self._backend, address_of(agent), message_id, after=after)

    async def ask(
        self,
        agent: str,
        message: Mapping[str, Any] | str,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy | str = BusyPolicy.ENQUEUE,
    ) -> Answer:
        """Send a message and return its answer, when its turn is committed.

        Args:
            timeout: for the answer, seconds; without one there is no limit. The message is not cancelled after it.

        Raises:
            AnswerTimeout: there was no answer in time. Its ``message_id`` is ``None`` if the message may not have been
                admitted.
            MessageFailed: the message failed, or is parked.
            RunPaused: its turn is paused.
            ClientError: as `send`.
        """
        message_id: str | None = None
        try:
            async with asyncio.timeout(timeout):
                async with await self.stream(
                    agent, message, idempotency_key=idempotency_key, when_busy=when_busy
                ) as run:
                    message_id = run.message_id
                    return await run.answer()
        except TimeoutError:
            raise AnswerTimeout(
                f"{agent} did not answer {message_id or 'the message'} within {timeout:g} s", message_id=message_id
            ) from None

    def of(
        self,
        agent: type[A],
        key: str,
        *,
        timeout: float | None = None,
        idempotency_key: str | None = None,
        when_busy: BusyPolicy | str = BusyPolicy.ENQUEUE,
    ) -> A:
        """Return the handlers of an agent: an object with a method for each, which sends its argument as `ask` does.

        ``await podium.of(Searcher, "kim").search(Query(text="cats"))`` is the result of the handler, and
        ``podium.of(Searcher, "kim").search.stream(Query(text="cats"))`` yields the parts of the answer as they come,
        the last one a `podium.Answered` with the result.

        Args:
            agent: its class, which this program imports.
            key: the second part of its address.
            timeout, idempotency_key, when_busy: as of `ask`; the idempotency key is for one call.

        Raises:
            ClientError: as `ask`, by the call.
            InvalidMessage: the argument is not one of the handler; nothing was sent.
            BadAnswer: the result is not of its type: the agent runs with another class.
        """
        from coordinator.client.typed_calls import handlers_at  # noqa: PLC0415  pydantic, and the agent's code is there

        named: dict[str, Any] = {"idempotency_key": idempotency_key, "when_busy": when_busy}
        ask = partial(self.ask, timeout=timeout, **named)
        return cast("A", handlers_at(agent, key, ask, self.read, partial(self.stream, **named)))

    # -- agents ---------------------------------------------------------------------------------------------------

    async def export(self, agent: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of an archive of an agent: all its events, and all versions of its files."""
        async with aclosing(self._backend.export(address_of(agent))) as chunks:
            async for chunk in chunks:
                yield chunk

    # -- history --------------------------------------------------------------------------------------------------

    async def events(
        self, agent: str, *, after: int = 0, types: Sequence[str] = (), follow: bool = False
    ) -> AsyncGenerator[Event]:
        """Yield an agent's recorded events, oldest first.

        Args:
            after: only events after this ``seq``.
            types: only events of these types; all by default.
            follow: after the last one, wait for new ones, without an end.
        """
        address = address_of(agent)
        if follow:
            async with aclosing(self._backend.tail(address, after)) as events:
                async for event in events:
                    if not types or event["type"] in types:
                        yield read_answer(objects.Event, event)
            return
        names = {"after_seq": "after", "types": "type"}
        request = Request("GET", "events", "events", lambda: objects.EventPage, names)
        only = list(types) or None
        async for found in items_of(
            lambda at: self._backend.call(request, address, after_seq=after, types=only, cursor=at)
        ):
            yield found

    async def follow_state(self, agent: str) -> AsyncGenerator[State]:
        """Yield an agent's state, and again after each turn, without an end.

        Only the patches of the turns are sent, and applied here. Each state is a value of its own; it costs a copy.
        """
        from coordinator.client.state_following import followed  # noqa: PLC0415  only here

        following = followed(lambda: self.state(agent), lambda version: self.events(agent, after=version, follow=True))
        async with aclosing(following) as states:
            async for state in states:
                yield state

    # -- files and artifacts --------------------------------------------------------------------------------------

    def files(self, agent: str) -> AsyncFiles:
        """Return the files of an agent's workspace."""
        return AsyncFiles(self._backend, address_of(agent))

    async def artifact(self, agent: str, artifact_id: str) -> bytes:
        """Return the content of an artifact.

        Raises:
            ResourceNotFound: there is none of that id.
        """
        async with aclosing(self.artifact_chunks(agent, artifact_id)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def artifact_chunks(self, agent: str, artifact_id: str) -> AsyncGenerator[bytes]:
        """Yield the content of an artifact in pieces, for one that is too large for memory; otherwise as `artifact`."""
        async with aclosing(self._backend.read_artifact(address_of(agent), artifact_id)) as chunks:
            async for chunk in chunks:
                yield chunk


def _body(message: Mapping[str, Any] | str) -> Mapping[str, Any]:
    return {"text": message} if isinstance(message, str) else message


async def _with_first(first: tuple[str, Wire], rest: Frames) -> Frames:
    async with aclosing(rest):
        yield first
        async for each in rest:
            yield each
