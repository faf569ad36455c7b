"""A run: the handle of one message that was sent, from which its frames and its answer are read."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from coordinator.client.asgi import StreamResponse, with_heartbeats
from coordinator.client.errors import BadAnswer, ClientError, MessageCancelled, MessageFailed, RunPaused
from coordinator.client.requests import AsyncRequests
from coordinator.operations.answers import AnswerBuilder
from coordinator.operations.errors import MessagePaused
from coordinator.streams.sse import encode_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from types import TracebackType
    from typing import Self

    from coordinator.client.backends.port import Backend, Frames
    from coordinator.operations.objects import Answer, Receipt
    from podium.address import Address

__all__ = ["AsyncRun"]

_OF_PAUSES: Final = frozenset({"tool_decision_pending", "turn_paused"})
"""Frames that tell why a stream ends without an answer."""


class AsyncRun:
    """One message that is durably in its agent's inbox; from `AsyncPodium.stream` or `AsyncPodium.follow`.

    As a context manager it closes its connection at the end. The message is handled whether it is read or not.

    Attributes:
        agent: the agent's address.
        message_id: the message; the id of the run.
        receipt: its receipt; ``None`` of one that is followed later.
    """

    def __init__(
        self,
        backend: Backend,
        agent: Address,
        message_id: str,
        *,
        after: str = "",
        receipt: Receipt | None = None,
        opened: Frames | None = None,
    ) -> None:
        self._backend = backend
        self._agent = agent
        self.agent = str(agent)
        self.message_id = message_id
        self.receipt = receipt
        self._after = after
        self._opened = opened
        """The stream that the message was sent on, until it is read."""
        self._position = after
        self._outcome: str | None = None
        """That of ``agent_end``, once it was read."""
        self._failure: Mapping[str, Any] = {}
        """The ``error`` frame, once it was read."""
        self._paused: dict[str, Any] | None = None
        """What it waits for, if the frames that were read last tell that it is paused."""
        self._answer: Answer | None = None

    @property
    def position(self) -> str:
        """The place after the last frame that `events` yielded, for ``after`` of `AsyncPodium.follow`."""
        return self._position

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, if one is open; the message is not cancelled."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield the message's frames from the beginning, or from where the run resumed; ``agent_end`` is the last one.

        Each call reads the stream anew. A lost connection is replaced, and the stream goes on where it was, inside of
        a text, too. ``turn_retry`` voids the frames of an attempt; the next one begins with ``turn_start``.

        Raises:
            Unreachable: there was no connection for the time limit; the message stays in the inbox.
        """
        async with aclosing(self._frames(self._after)) as frames:
            async for position, frame in frames:
                self._position = position or self._position
                yield frame

    async def answer(self) -> Answer:
        """Wait until the message is handled; return its answer.

        Raises:
            MessageFailed: the message failed, or is parked.
            MessageCancelled: the message was cancelled.
            RunPaused: its turn is paused; call this again once the run is answered.
            Unreachable: as `events`.
        """
        if self._answer is None:
            found = await self._read_answer() if self._outcome in (None, "paused") else None
            if self._outcome == "paused":
                raise RunPaused(f"{self.message_id} is paused", run=self._paused, message_id=self.message_id)
            if self._outcome != "committed":
                raise _failure(self.message_id, str(self._outcome), self._failure)
            if found is None:
                found = (await AsyncRequests(self._backend).message(self.agent, self.message_id)).answer
            if found is None:
                raise BadAnswer(f"{self.message_id} is committed, and its answer is not kept")
            self._answer = found
        return self._answer

    async def text(self) -> str:
        """Wait until the message is handled; return the text of its answer.

        Raises:
            MessageFailed: as `answer`.
            Unreachable: as `events`.
        """
        return (await self.answer()).text

    async def cancel(self) -> None:
        """Cancel the message: its turn is rolled back, and its stream ends with the outcome ``cancelled``.

        Raises:
            RequestConflict: it was handled already.
        """
        await AsyncRequests(self._backend).cancel(self.agent, self.message_id)

    async def to_readable_stream(self, after: str = "") -> AsyncGenerator[bytes]:
        """Yield the frames as server-sent events, one JSON object each, with heartbeats while none comes.

        Args:
            after: a reader's ``Last-Event-ID``: the stream goes on after it.

        Raises:
            Unreachable: as `events`.
        """
        async with aclosing(with_heartbeats(_encoded(self._frames(after or self._after)))) as chunks:
            async for chunk in chunks:
                yield chunk

    def to_response(self) -> StreamResponse:
        """Return an ASGI application that answers a request with `to_readable_stream`.

        A request's ``Last-Event-ID`` is heeded, so that a browser's ``EventSource`` resumes.
        """
        return StreamResponse(self.to_readable_stream)

    async def _read_answer(self) -> Answer | None:
        """Read the stream to its end; return the answer, if the stream has all of it and not only what followed."""
        builder, found = AnswerBuilder(self._agent.name, self.message_id), None
        async with aclosing(self._frames(self._after)) as frames:
            async for _, frame in frames:
                if frame["type"] in _OF_PAUSES or (not self._after and frame["type"] != "error"):
                    try:
                        found = builder.add(frame) or found
                    except MessagePaused as paused:
                        self._paused = paused.run
        return found

    async def _frames(self, after: str) -> Frames:
        """Yield the stream that the message was sent on, if it was not read yet, else a new one."""
        if after == self._after and self._opened is not None:
            opened, self._opened = self._opened, None
        else:
            opened = self._backend.follow(self._agent, self.message_id, after)
        async with aclosing(opened) as frames:
            try:
                async for position, frame in frames:
                    if frame["type"] == "error":
                        self._failure = frame
                    elif frame["type"] == "agent_end":
                        self._outcome = frame["outcome"]
                    yield position, frame
            except ClientError as error:
                error.message_id = self.message_id
                raise


async def _encoded(frames: Frames) -> AsyncGenerator[bytes]:
    async with aclosing(frames):
        async for position, frame in frames:
            yield encode_event(frame, position or None)


def _failure(message_id: str, outcome: str, frame: Mapping[str, Any]) -> MessageFailed:
    """Return the error of a message that ended without a commit.

    Args:
        frame: its ``error`` frame; empty if the run resumed after it.
    """
    error, parked = frame.get("error", {}), bool(frame.get("parked", outcome == "parked"))
    kind, text = str(error.get("type", "")), str(error.get("message", ""))
    told = ": ".join(part for part in (f"{message_id} {outcome}", kind, text) if part)
    if outcome == "cancelled":
        return MessageCancelled(told, error_type=kind, message_id=message_id)
    code = "message_parked" if parked else "turn_failed"
    return MessageFailed(told, error_type=kind, parked=parked, message_id=message_id, code=code)
