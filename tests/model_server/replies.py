"""How the server replies to one request: an answer, a refusal or a page, and what goes wrong with its bytes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from tests.model_server.answers import Answer, Wire
from tests.model_server.wires import document, error_document, error_frame, frames


@dataclass(frozen=True)
class Hold:
    """Send nothing more until the event is set, or the client has left."""

    until: threading.Event


@dataclass(frozen=True)
class Cut:
    """Close the connection in the middle."""


@dataclass(frozen=True)
class Wait:
    """Let time pass, for benchmarks and browsers; tests hold."""

    seconds: float


Step: TypeAlias = bytes | Hold | Cut | Wait
Shape: TypeAlias = Callable[[list[bytes]], Iterable[Step]]
"""Makes of the frames of a stream what is sent; each piece of bytes is a chunk of the body."""


@dataclass(frozen=True)
class Reply:
    """One reply.

    A refusal or a page has a body; anything else is an answer, as a stream if the request wants one.
    """

    answer: Answer = field(default_factory=Answer)
    shape: Shape | None = None
    newline: str = "\n"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Callable[[Wire], bytes] | None = None
    content_type: str = "application/json"
    before: Sequence[Step] = ()
    """Before the head of the reply."""

    def steps(self, wire: Wire, *, streamed: bool) -> tuple[str, list[Step]]:
        """The content type, and the body."""
        if self.body is not None:
            body = [self.body(wire)]
        elif streamed:
            body = frames(wire, self.answer, self.newline)
        else:
            body = [json.dumps(document(wire, self.answer)).encode()]
        steps: list[Step] = [*(self.shape(body) if self.shape is not None else body)]
        return ("text/event-stream" if self.body is None and streamed else self.content_type), steps


def say(text: str) -> Reply:
    """A text."""
    return Reply(Answer(text))


def refusal(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Reply:
    """An error with a status."""
    return Reply(
        status=status,
        headers=headers or {},
        body=lambda wire: json.dumps(error_document(wire, code, message)).encode(),
    )


def rate_limited(retry_after: str | None = "7") -> Reply:
    """429, with the wait as a number of seconds or a date."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return refusal(429, "rate_limit_error", "too many requests", headers)


def overloaded() -> Reply:
    """The provider has no capacity."""
    return refusal(529, "overloaded_error", "Overloaded")


def page(status: int = 200, title: str = "502 Bad Gateway") -> Reply:
    """HTML instead of JSON."""
    html = f"<html><head><title>{title}</title></head><body><h1>{title}</h1><hr>nginx</body></html>"
    return Reply(status=status, body=lambda _: html.encode(), content_type="text/html")


def failing_stream(wire: Wire, code: str, message: str, answer: Answer, after_frames: int = 3) -> Reply:
    """An answer that ends with an error in its stream."""
    return Reply(answer, shape=lambda body: [*body[:after_frames], error_frame(wire, code, message)])


# -- shapes ------------------------------------------------------------------------------------------------------------


def split_at(positions: Iterable[int]) -> Shape:
    """The same bytes in other pieces."""

    def shape(body: list[bytes]) -> list[Step]:
        whole = b"".join(body)
        places = sorted({0, len(whole), *(position % (len(whole) + 1) for position in positions)})
        return [whole[begin:end] for begin, end in pairwise(places)]

    return shape


def cut_at(position: int) -> Shape:
    """Bytes up to a position, and then a cut connection."""
    return lambda body: [b"".join(body)[:position], Cut()]


def end_at(position: int) -> Shape:
    """Bytes up to a position, and then an ordinary end of the body."""
    return lambda body: [b"".join(body)[:position]]


def hold_after(count: int, until: threading.Event) -> Shape:
    """Some frames, then a hold, then the others."""
    return lambda body: [*body[:count], Hold(until), *body[count:]]


def replaced(count: int, by: bytes) -> Shape:
    """A frame replaced by bytes."""
    return lambda body: [*body[:count], by, *body[count + 1 :]]
