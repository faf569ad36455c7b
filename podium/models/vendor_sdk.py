"""Use of the vendors' libraries by a provider: the request, the events of its answer, and the meaning of errors.

The libraries of OpenAI and Anthropic are made by one generator, so they have the same shape, and this module is written
for both; it imports neither. Of a library are used: the client with its connections, authentication and limits of time,
the reader of event streams, and the exceptions. Events stay plain JSON: what the library does not know yet is not lost,
and a token costs no model of pydantic. The library's own retries are off, as attempts are counted elsewhere.
"""

from __future__ import annotations

import asyncio
import importlib
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Protocol

from chronicle.clock import SystemClock
from chronicle.errors import InvalidInput
from podium.models.errors import ModelError, ProviderNotInstalled
from podium.models.failures import model_error, short_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from types import ModuleType

    from chronicle.canonical import JsonObject
    from podium.models.port import LLMStreamChunk

__all__ = ["CONNECT_TIMEOUT_S", "SILENCE_TIMEOUT_S", "Reader", "Vendor", "import_sdk"]

SILENCE_TIMEOUT_S: Final = 300.0
"""Reasoning models of OpenAI may be silent for minutes before their first token."""
CONNECT_TIMEOUT_S: Final = 10.0
_DRAIN_S: Final = 0.1
"""After the last event, for the end of the body: else the connection could not be used again."""
_CLOCK: Final = SystemClock()
"""For waits that a provider names as a date."""
_MAX_OF_A_PAGE: Final = 20_000
_MALFORMED: Final = (InvalidInput, ValueError, TypeError, KeyError, AttributeError, IndexError)
"""Exceptions of reading an event that has not the shape that the protocol gives it."""


class Reader(Protocol):
    """Reads the events of one answer."""

    @property
    def complete(self) -> bool:
        """True if the model has ended its answer, so that a cut connection loses nothing."""
        ...

    @property
    def ended(self) -> bool:
        """True if no event follows."""
        ...

    @property
    def failure(self) -> dict[str, Any] | None:
        """Report of the provider when the answer failed."""
        ...

    def feed(self, event: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        """Read an event, and yield what it says."""
        ...

    def end(self) -> Iterator[LLMStreamChunk]:
        """Yield what follows the last event of a complete answer."""
        ...


def import_sdk(library: str) -> ModuleType:
    """Import the library of a vendor.

    Raises:
        ProviderNotInstalled: it is not there.
    """
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != library:
            raise
        raise ProviderNotInstalled(f"{library} is not installed: pip install 'podium[{library}]'") from error


class Vendor:
    """A client of a vendor's library, and the exceptions of that library. Use it in one event loop.

    Args:
        sdk: the library.
        client: its asynchronous client, with its retries off.
        name: the provider's name, for errors.
        silence_timeout_s: what the client's limit of time for reading is, for errors.
    """

    def __init__(self, sdk: ModuleType, client: Any, name: str, silence_timeout_s: float) -> None:
        self._sdk = sdk
        self._httpx = importlib.import_module("httpx2")  # the library's own HTTP client, and there with it
        self._client = client
        self._name = name
        self._silence_timeout_s = silence_timeout_s

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def stream(self, path: str, body: JsonObject, reader: Reader) -> AsyncGenerator[LLMStreamChunk, None]:
        """Send a request, and yield what the reader makes of its answer.

        Raises:
            ModelError: the request, or its answer, failed.
        """
        try:
            async with aclosing(self._events(path, body)) as events:
                async for event in events:
                    for chunk in self._read(reader, event):
                        yield chunk
                    if reader.failure is not None:
                        raise model_error(self._name, None, reader.failure, now_ms=_CLOCK.now_ms())
                    if reader.ended:
                        await _drain(events)
                        break
        except ModelError:
            if not reader.complete:
                raise
        if not reader.complete:
            raise ModelError(f"{self._name}: the answer ended in the middle", "protocol", provider=self._name)
        for chunk in reader.end():
            yield chunk

    def _read(self, reader: Reader, event: Any) -> Iterator[LLMStreamChunk]:
        try:
            if not isinstance(event, dict):
                raise TypeError(f"an event is {type(event).__name__}, not an object")
            yield from reader.feed(event)
        except _MALFORMED as error:
            raise self._protocol(f"an event is not as the protocol has it: {error!r}") from error

    async def _events(self, path: str, body: JsonObject) -> AsyncGenerator[Any, None]:
        sdk = self._sdk
        try:
            stream = await self._client.post(
                path, cast_to=object, body=body, stream=True, stream_cls=sdk.AsyncStream[object]
            )
            async with stream:
                await self._check_content_type(stream.response)
                async for event in stream:
                    yield event
        except ModelError:
            raise
        except (sdk.APITimeoutError, self._httpx.TimeoutException) as error:
            said = "did not accept a connection" if _is_connecting(error) else f"was silent for {self._silence()}"
            raise ModelError(f"{self._name} {said}", "timeout", provider=self._name) from error
        except (sdk.APIConnectionError, self._httpx.TransportError) as error:
            why = short_text(str(error.__cause__ or error)) or type(error.__cause__ or error).__name__
            raise ModelError(f"no connection to {self._name}: {why}", "unavailable", provider=self._name) from error
        except sdk.APIStatusError as error:
            status = error.status_code if error.status_code >= 400 else None
            said = error.body if error.body is not None else error.response.text
            raise model_error(self._name, status, said, error.response.headers, now_ms=_CLOCK.now_ms()) from error
        except sdk.APIError as error:
            raise model_error(self._name, None, error.body or error.message, now_ms=_CLOCK.now_ms()) from error
        except ValueError as error:  # half a frame: JSON, or UTF-8, that ends in the middle
            raise self._protocol(f"an event is not JSON: {error}") from error

    async def _check_content_type(self, response: Any) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in {"text/html", "application/json"}:
            return  # some servers name none, or another one
        page = b""
        async for part in response.aiter_bytes():
            page += part
            if len(page) >= _MAX_OF_A_PAGE:
                break
        text = page.decode(errors="replace")
        raise self._protocol(f"answered with {kind} and no stream; is its base URL right? {short_text(text)}")

    def _protocol(self, what: str) -> ModelError:
        return ModelError(f"{self._name}: {what}", "protocol", provider=self._name)

    def _silence(self) -> str:
        return f"{self._silence_timeout_s:g} s"


async def _drain(events: AsyncGenerator[Any, None]) -> None:
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in events:
                pass
    except (TimeoutError, ModelError):
        pass  # The answer is complete; only the connection is lost.


def _is_connecting(error: BaseException) -> bool:
    return "ConnectTimeout" in {type(error).__name__, type(error.__cause__).__name__}
