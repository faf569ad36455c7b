"""Streams of messages to many readers: one subscription to the service for each message, however many read it.

A frame is encoded once, and its bytes are shared by all readers that keep up. A reader that does not is remembered by
its position alone: when it reads again, it gets the rest from what the subscription has of the running attempt, as one
that resumes does. So a slow reader costs the same memory whatever it misses, and delays nobody.

When the service is lost, the subscription is made again, and goes on where it was. What a reader gets does not depend
on the process that it is connected to.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from coordinator.service.client import ServiceError, ServiceRefused
from coordinator.streams.fan_out import Reader, TaskOwner
from coordinator.streams.position import Position, Reading, outcome_of
from coordinator.streams.public_texts import public_frame, without_text
from coordinator.streams.sse import encode_event
from podium.errors import PodiumError
from podium.turn.stream import TERMINAL_FRAMES, VOIDING_FRAMES, Backlog, without_size

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from podium.address import Address
    from podium.turn.stream import Frame

__all__ = ["Follower", "MessageReader", "MessageStreams", "StreamedFrame"]

_MAX_PENDING_BYTES: Final = 64 * 1024
"""Encoded frames that wait for a reader before only its position is kept."""
_BATCH_BYTES: Final = 64 * 1024
"""Frames that a reader gets at a time when it catches up: at least one, and others up to this size."""
_RETRY_S: Final = 0.5
"""Pause between attempts to follow a message again."""

_GONE: Final = frozenset({"NotFound", "UnknownAgent"})
"""Errors of a message that is not in an inbox."""

_log = structlog.stdlib.get_logger(__name__)


class Follower(Protocol):
    """The connection to the service, as streams use it; a `coordinator.service.client.ServiceClient` is one."""

    def follow(self, agent: str, message_id: str) -> AsyncGenerator[Frame, None]:
        """Yield the frames of a message from the beginning of its attempt, the terminal one last."""
        ...


class StreamedFrame(NamedTuple):
    """A frame as readers get it."""

    frame: Frame
    position: str | None
    """The text of the `Position` after it; ``None`` if that is the one before."""
    event: bytes
    """The SSE event."""


class MessageStreams(TaskOwner):
    """The streams of messages that clients of this process read. Use it as an async context manager.

    Args:
        connect: returns a live connection to the service; it raises `ServiceError` if there is none.
        unread_s: how long a message is followed that nobody reads: a client that lost its connection comes back.
        lost_s: how long a lost service is awaited; then the readers' streams end, to be resumed.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Follower]], *, unread_s: float = 30.0, lost_s: float = 60.0
    ) -> None:
        super().__init__()
        self._connect = connect
        self._unread_s = unread_s
        self._lost_s = lost_s
        self._followed: dict[tuple[Address, str], _Followed] = {}
        self._closed = False

    def close(self) -> None:
        """End the streams of all readers, who can resume them at another process; open no others."""
        self._closed = True
        for followed in list(self._followed.values()):
            followed.stop()

    @contextmanager
    def open(
        self,
        address: Address,
        message_id: str,
        position: Position | None = None,
        accepted: Frame | None = None,
        *,
        error_texts: bool = True,
    ) -> Iterator[MessageReader]:
        """Open a message's stream while the context lasts.

        Args:
            address: of the agent. It must have the message: otherwise the stream is an ``error`` frame.
            position: what the reader has already; ``None`` for the whole stream.
            accepted: the frame that begins the whole stream.
            error_texts: whether the reader gets the texts of errors that agents' code makes.
        """
        reader = MessageReader(position or Position.start(message_id), error_texts=error_texts)
        if position is None and accepted is not None:
            reader.push(_streamed(accepted, str(Position.start(message_id))))
        followed = None
        try:
            if self._closed:
                reader.end()
            elif position is not None and (position.is_end or position.outcome is not None):
                reader.finish(address, position)
            else:
                followed = self._follow(address, message_id)
                followed.add(reader)
            yield reader
        finally:
            if followed is not None:
                followed.remove(reader, self._unread_s)

    def _follow(self, address: Address, message_id: str) -> _Followed:
        key = address, message_id
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = _Followed(address, message_id, self._forget)
            task = self._tasks.create_task(followed.run(self._connect, self._lost_s), name=f"follow {message_id}")
            followed.runs_in(task)
        return followed

    def _forget(self, followed: _Followed) -> None:
        """Forget a message that is not followed any more; a reader that comes now makes it followed again."""
        if self._followed.get(followed.key) is followed:
            del self._followed[followed.key]


class MessageReader(Reader):
    """One reader of a message's stream, made by `MessageStreams.open`.

    Args:
        position: what the reader has.
        error_texts: whether it gets the texts of errors.
    """

    def __init__(self, position: Position, *, error_texts: bool = True) -> None:
        super().__init__()
        self._error_texts = error_texts
        self._message_id = position.message_id
        self._position = str(position)
        self._pending: list[StreamedFrame] = []
        self._pending_bytes = 0
        self._source: _SoFar | None = None
        """Where the reader gets what it misses; `None` if it misses nothing but the pending frames."""

    @property
    def position(self) -> str:
        """The position after the last frames that were returned."""
        return self._position

    @property
    def is_complete(self) -> bool:
        """Whether the whole stream was returned, up to its last frame."""
        return self._position.endswith("/end")

    async def next(self) -> list[StreamedFrame]:
        """Wait for frames, and return them; none at the end of the stream.

        A stream that ends without ``agent_end`` is to be resumed from the `position`.
        """
        while True:
            self._ready.clear()
            if (batch := self.take()) or self._over:
                return batch
            await self._ready.wait()

    def take(self) -> list[StreamedFrame]:
        """Return what is there, without waiting. Atomic: no `await`."""
        batch = self._next_batch()
        for streamed in reversed(batch):
            if streamed.position is not None:
                self._position = streamed.position
                break
        return batch if self._error_texts else [_discreet(each) for each in batch]

    # -- for the stream -------------------------------------------------------------------------------------------

    def catch_up(self, source: _SoFar) -> None:
        """Have the reader take what it misses from a stream so far; `push` follows."""
        self._source = source
        self._ready.set()

    def push(self, streamed: StreamedFrame, source: _SoFar | None = None) -> None:
        """Add a frame.

        Args:
            source: has it, and all the frames before; used if the reader does not keep up.
        """
        if self._source is None:
            self._pending.append(streamed)
            self._pending_bytes += len(streamed.event)
            if source is not None and self._pending_bytes > _MAX_PENDING_BYTES:
                self._pending, self._pending_bytes = [], 0
                self._source = source
        self._ready.set()

    def finish(self, address: Address, position: Position) -> None:
        """Add what a reader misses that has the terminal frame, and end the stream."""
        if position.outcome is not None:
            end = _agent_end(address, self._message_id, position.outcome)
            self.push(_streamed(end, str(Position(self._message_id, stage="end"))))
        self.end()

    def cut_off(self) -> None:
        """End the stream now, and drop what the reader misses."""
        self._pending, self._source = [], None
        self.end()

    def _next_batch(self) -> list[StreamedFrame]:
        """Return what waits, or the next part of what is missing."""
        if self._pending:
            batch, self._pending, self._pending_bytes = self._pending, [], 0
            return batch
        if self._source is None:
            return []
        had = Position.parse(self._position, self._message_id)
        told = Position.parse(self._source.position, self._message_id)
        if self._source.is_lost and had.is_of_later_attempt(told) and not self._over:
            return []  # what this gateway has is void by now: the reader comes from one that has the service
        reading = Reading(had)
        batch, size, reached = [], 0, self._position
        for frame in self._source.backlog.frames():
            for new, position in reading.feed(frame):
                batch.append(_streamed(new, position))
                size += len(batch[-1].event)
                reached = position or reached
            if size >= _BATCH_BYTES:
                return batch
        if reached == self._source.position:
            self._source = None
        return batch


class _SoFar:
    """A stream up to now: its running attempt."""

    def __init__(self, message_id: str) -> None:
        self.backlog = Backlog()
        self.position = str(Position.start(message_id))
        """The position after it. Readers that resumed may be further, for a moment."""
        self.is_lost = False
        """Whether the connection to the service is lost, so that more may have happened."""


class _Followed:
    """A message that is followed: what it said in its running attempt, and who reads it.

    Args:
        on_end: called when it is followed no longer, perhaps repeatedly.
    """

    def __init__(self, address: Address, message_id: str, on_end: Callable[[_Followed], None]) -> None:
        self.key = address, message_id
        self._address = address
        self._message_id = message_id
        self._on_end = on_end
        self._so_far = _SoFar(message_id)
        self._readers: set[MessageReader] = set()
        self._woken = False
        """Whether an ``agent_start`` was told."""
        self._task: asyncio.Task[None] | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def runs_in(self, task: asyncio.Task[None]) -> None:
        """Set the task of `run`, which `stop` ends."""
        self._task = task

    def stop(self) -> None:
        """Follow no longer; the readers' streams end."""
        self._on_end(self)
        if self._task is not None:
            self._task.cancel()
        for reader in self._readers:
            reader.end()

    def add(self, reader: MessageReader) -> None:
        """Add a reader."""
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        self._readers.add(reader)
        reader.catch_up(self._so_far)

    def remove(self, reader: MessageReader, unread_s: float) -> None:
        """Remove a reader; without any, the message is followed for a while."""
        self._readers.discard(reader)
        if not self._readers and self._unread_timer is None:
            self._unread_timer = asyncio.get_running_loop().call_later(unread_s, self.stop)

    async def run(self, connect: Callable[[], Awaitable[Follower]], lost_s: float) -> None:
        """Follow the message to its end, or until nobody reads it, or the service does not come back."""
        try:
            await self._run(connect, lost_s)
        except PodiumError as error:
            _log.warning(
                "message_not_followed", message_id=self._message_id, agent_id=str(self._address), error=str(error)
            )
        except Exception:  # noqa: BLE001  a bug: the other streams go on
            _log.exception("following_failed", message_id=self._message_id, agent_id=str(self._address))
        finally:
            self._on_end(self)
            if self._unread_timer is not None:
                self._unread_timer.cancel()
            for reader in self._readers:
                reader.end()

    async def _run(self, connect: Callable[[], Awaitable[Follower]], lost_s: float) -> None:
        clock = asyncio.get_running_loop()
        deadline_s: float | None = None
        while True:
            try:
                client = await connect()
                reading = Reading(Position.parse(self._so_far.position, self._message_id))
                async with aclosing(client.follow(str(self._address), self._message_id)) as frames:
                    async for frame in frames:
                        deadline_s, self._so_far.is_lost = None, False
                        for new, position in reading.feed(frame):
                            self._take(new, position)
                        if frame["type"] in TERMINAL_FRAMES:
                            return
            except ServiceRefused as error:
                self._take(_refusal(self._message_id, error), None)
                return
            except ServiceError:
                self._so_far.is_lost = True
                now_s = clock.time()
                deadline_s = deadline_s or now_s + lost_s
                if now_s >= deadline_s:
                    raise
                await asyncio.sleep(_RETRY_S)

    def _take(self, frame: Frame, position: str | None) -> None:
        frame, kind = public_frame(frame), frame["type"]
        if kind in VOIDING_FRAMES:
            self._so_far.backlog.drop_attempts()
        if kind == "agent_start":
            self._woken = True
            code = {name: value for name, value in frame.get("code", {}).items() if name != "file"}
            # The tenant is the caller's, and paths of this machine are nobody's business.
            frame = {**frame, "agent": self._address.name, **({"code": code} if code else {})}
        elif kind == "turn_start" and not self._woken:  # it was awake, or the message is long settled
            self._woken = True
            self._publish(_agent_start(self._address, frame), None)
        elif kind in TERMINAL_FRAMES:
            outcome = outcome_of(frame)
            self._publish(frame, str(Position(self._message_id, stage=outcome)))
            end = _agent_end(self._address, self._message_id, outcome)
            self._publish(end, str(Position(self._message_id, stage="end")))
            return
        self._publish(frame, position)

    def _publish(self, frame: Frame, position: str | None) -> None:
        self._so_far.backlog.add(frame)
        self._so_far.position = position or self._so_far.position
        streamed = _streamed(frame, position)
        for reader in self._readers:
            reader.push(streamed, self._so_far)


def _streamed(frame: Frame, position: str | None) -> StreamedFrame:
    frame = without_size(frame)
    return StreamedFrame(frame, position, encode_event(frame, position))


def _discreet(streamed: StreamedFrame) -> StreamedFrame:
    """Return a frame without the text of its error; any other one as it is."""
    frame = streamed.frame
    if "error" not in frame or frame["type"] == "event":
        return streamed
    error = without_text(frame["error"], frame["message_id"])
    return _streamed({**frame, "error": error}, streamed.position)


def _refusal(message_id: str, error: ServiceRefused) -> Frame:
    """Return the frame of a message that cannot be followed; it is pending unless it, or its agent, is gone."""
    refusal = {"type": error.kind, "message": str(error)}
    frame: Frame = {"type": "error", "message_id": message_id, "error": refusal, "parked": False}
    return frame if error.kind in _GONE else {**frame, "pending": True}


def _agent_start(address: Address, turn_start: Frame) -> Frame:
    before = turn_start["turn"] - 1
    return {"type": "agent_start", "message_id": turn_start["message_id"], "agent": address.name, "turn": before}


def _agent_end(address: Address, message_id: str, outcome: str) -> Frame:
    return {"type": "agent_end", "message_id": message_id, "agent": address.name, "outcome": outcome}
