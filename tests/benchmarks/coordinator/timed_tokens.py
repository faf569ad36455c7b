"""A local model server that writes the time into each token when it sends it, and the latencies of its tokens."""

from __future__ import annotations

import re
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from podium.models import LLMMessage, TextDelta
from tests.model_server.answers import Answer
from tests.model_server.replies import Reply, Wait
from tests.model_server.server import ModelServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from tests.model_server.answers import Wire
    from tests.model_server.replies import Step

__all__ = ["ASKED", "latencies", "sent_ns", "timed_server"]

TOKENS: Final = 50
PAUSE_S: Final = 0.005
ASKED: Final = (LLMMessage("user", "go on"),)


def timed_server() -> ModelServer:
    """Return a server, each of whose answers has 50 tokens, 5 ms apart."""
    return ModelServer(lambda _: _Timed(Answer("TIME " * TOKENS)))


async def latencies(chunks: AsyncGenerator[Any, None]) -> list[float]:
    """Return the time from the sending of each token of a call to here, s."""
    found = []
    async with aclosing(chunks):
        async for chunk in chunks:
            now_ns = time.monotonic_ns()
            if isinstance(chunk, TextDelta) and (sent := sent_ns(chunk.text)) is not None:
                found.append((now_ns - sent) / 1e9)
    return found


def sent_ns(text: str) -> int | None:
    """Return when a token was sent, on the monotonic clock."""
    sent = re.search(r"\d{6,}", text)
    return int(sent[0]) if sent else None


class _Timed(Reply):
    """Writes the time into each token when it is sent."""

    def steps(self, wire: Wire, *, streamed: bool) -> tuple[str, Any]:
        kind, steps = super().steps(wire, streamed=streamed)
        return kind, _with_times(steps)


def _with_times(steps: Iterable[Step]) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, bytes) and b"TIME" in step:
            yield Wait(PAUSE_S)
            yield step.replace(b"TIME", str(time.monotonic_ns()).encode())
        else:
            yield step
