"""The server: HTTP/1.1 on a port of the loopback interface, in a thread of its own, so that any test can use it.

It replies with what was put into its queue, one for each request, and repeats the last message if there is nothing.
Every byte it sends is what the reply says: nothing is buffered, joined or mended by a framework.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.model_server.answers import PATHS, Answer
from tests.model_server.replies import Cut, Hold, Reply, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from tests.model_server.answers import Wire
    from tests.model_server.replies import Step

_GIVE_UP_S = 30.0
_LOOK_S = 0.01
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    """With names in lower case; ``x-connection`` is the port of the client."""
    body: dict[str, Any]
    left: threading.Event = field(default_factory=threading.Event)
    """Set when the client closed the connection before the reply was complete."""
    replied: threading.Event = field(default_factory=threading.Event)
    """Set when the whole reply was sent."""

    @property
    def wire(self) -> Wire:
        return PATHS[self.path]


class ModelServer:
    """A model server for one test.

    Args:
        reply: chooses the reply to a request instead of the queue.
    """

    def __init__(self, reply: Callable[[Request], Reply] | None = None) -> None:
        self.replies: deque[Reply] = deque()
        self.requests: list[Request] = []
        self._choose = reply or self._from_queue
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="model-server", daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        """Without ``/v1``, as the library of Anthropic wants it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_GIVE_UP_S):
            raise TimeoutError("the model server does not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_GIVE_UP_S)

    def will(self, *replies: Reply | Answer | str) -> None:
        """Put replies into the queue."""
        for reply in replies:
            match reply:
                case str():
                    self.replies.append(Reply(Answer(reply)))
                case Answer():
                    self.replies.append(Reply(reply))
                case Reply():
                    self.replies.append(reply)

    def wait_for_requests(self, count: int) -> list[Request]:
        """Wait until that many requests have arrived, and return all."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.requests) >= count, _GIVE_UP_S):
                raise TimeoutError(f"{len(self.requests)} requests arrived, not {count}")
            return list(self.requests)

    def _from_queue(self, request: Request) -> Reply:
        return self.replies.popleft() if self.replies else Reply(Answer(last_text(request.body)))

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = first.split(" ")[1].partition("?")[0]
        if path not in PATHS:
            writer.write(_head(404, "text/plain", {}) + b"7\r\nno path\r\n" + _LAST_CHUNK)
            return True
        headers["x-connection"] = str(writer.get_extra_info("peername")[1])
        request = Request(path, headers, json.loads(body))
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        reply = self._choose(request)
        kind, steps = reply.steps(request.wire, streamed=bool(request.body.get("stream")))
        try:
            await self._walk(reply.before, reader, writer)
            writer.write(_head(reply.status, kind, reply.headers))
            if not await self._walk(steps, reader, writer):
                return False
            writer.write(_LAST_CHUNK)
            await writer.drain()
        except ConnectionError:
            request.left.set()
            raise
        request.replied.set()
        return True

    async def _walk(self, steps: Iterable[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Go through the steps; return whether the connection goes on."""
        for step in steps:
            match step:
                case bytes():
                    if step:
                        writer.write(b"%x\r\n%s\r\n" % (len(step), step))
                        await writer.drain()
                case Cut():
                    return False
                case Wait(seconds):
                    await asyncio.sleep(seconds)
                case Hold(until):
                    while not until.is_set():
                        if reader.at_eof():
                            raise ConnectionResetError("the client left")
                        await asyncio.sleep(_LOOK_S)
        return True


def _head(status: int, content_type: str, headers: dict[str, str]) -> bytes:
    fields = {"Content-Type": content_type, "Transfer-Encoding": "chunked", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Because\r\n{lines}\r\n".encode()


def last_text(body: dict[str, Any]) -> str:
    """The text of the last message of a request, in any of the formats."""
    messages = body.get("messages") or body.get("input") or []
    if isinstance(messages, str):
        return messages
    content = messages[-1].get("content") or messages[-1].get("output") or "" if messages else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
