"""Providers for OpenAI and for every server that speaks one of its formats, over the library ``openai``."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from podium.models.errors import ModelError
from podium.models.openai_compat.chat_reader import ChatReader
from podium.models.openai_compat.chat_request import chat_request
from podium.models.openai_compat.options import DEFAULT_BASE_URL, Options, PromptCache, name_for
from podium.models.openai_compat.responses_reader import ResponsesReader
from podium.models.openai_compat.responses_request import responses_request
from podium.models.vendor_sdk import CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S, Reader, Vendor, import_sdk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
    from typing import Self

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import LLMMessage, LLMStreamChunk

__all__ = ["OpenAICompatProvider", "OpenAIResponsesProvider"]

_NO_KEY: Final = "none"
"""A server of one's own may want no key, and the library sends none that is empty."""


class OpenAICompatProvider:
    """A model behind the chat completions API, of OpenAI or of any server that speaks it.

    Use it in one event loop, and close it at the end. No key and no address is read from the environment.

    Args:
        model: the model's name at the provider.
        base_url: such as ``http://127.0.0.1:11434/v1`` for Ollama; by default OpenAI's.
        api_key: ``None`` for a server that wants none.
        max_output_tokens: the limit of an answer; ``None`` for the model's own.
        prompt_cache: how cache hints are said; see `PromptCache`.
        prompt_cache_key: groups requests with the same beginning, so that they meet the same cache.
        silence_timeout_s: seconds without a byte after which a request fails.
        connect_timeout_s: seconds for a connection.
        extra: further fields of each request, such as ``{"reasoning_effort": "low"}``.
        name: of the provider, in errors and in the blocks that only it understands; by default ``openai``, with the
            host for servers of other makes.

    Raises:
        ProviderNotInstalled: the extra ``podium[openai]`` is not installed.
    """

    wire: ClassVar[str] = "openai"
    _path: ClassVar[str] = "/chat/completions"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_output_tokens: int | None = None,
        prompt_cache: PromptCache = "auto",
        prompt_cache_key: str | None = None,
        silence_timeout_s: float = SILENCE_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        extra: Mapping[str, Json] | None = None,
        name: str | None = None,
    ) -> None:
        sdk = import_sdk("openai")
        self._has_key = api_key is not None
        self._options = Options(
            name or name_for(self.wire, base_url, DEFAULT_BASE_URL),
            model,
            base_url or DEFAULT_BASE_URL,
            max_output_tokens,
            prompt_cache,
            prompt_cache_key,
            extra or {},
        )
        client = sdk.AsyncOpenAI(
            api_key=api_key or _NO_KEY,
            base_url=self._options.base_url,
            max_retries=0,
            timeout=sdk.Timeout(silence_timeout_s, connect=connect_timeout_s),
        )
        # Of the environment, for OpenAI alone: another server is not to know them.
        client.organization = client.project = None
        self._vendor = Vendor(sdk, client, self._options.name, silence_timeout_s)

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._options.name

    def for_call(self, *, max_output_tokens: int | None = None, prompt_cache_key: str | None = None) -> Self:
        """Return a provider with other values for a call; ``None`` keeps a value. It shares this one's connections."""
        other = object.__new__(type(self))
        other._has_key, other._vendor = self._has_key, self._vendor
        other._options = replace(
            self._options,
            max_output_tokens=max_output_tokens or self._options.max_output_tokens,
            prompt_cache_key=prompt_cache_key or self._options.prompt_cache_key,
        )
        return other

    async def stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Iterable[JsonObject] | None = None,
        temperature: float | None = None,
    ) -> AsyncGenerator[LLMStreamChunk, None]:
        """Send one request and yield its answer; see `podium.models.port.LLMProvider.stream`."""
        if self._options.is_vendor and not self._has_key:
            raise ModelError(f"{self.name}: there is no API key", "auth", provider=self.name)
        body = self._request(messages, tools, temperature)
        async with aclosing(self._vendor.stream(self._path, body, self._reader())) as chunks:
            async for chunk in chunks:
                yield chunk

    async def aclose(self) -> None:
        """Close all connections, also those of `for_call`."""
        await self._vendor.aclose()

    def _request(
        self, messages: Sequence[LLMMessage], tools: Iterable[JsonObject] | None, temperature: float | None
    ) -> JsonObject:
        return chat_request(self._options, messages, tools, temperature)

    def _reader(self) -> Reader:
        return ChatReader(self._options.name, self._options.model)


class OpenAIResponsesProvider(OpenAICompatProvider):
    """A model behind the Responses API. The arguments are those of `OpenAICompatProvider`.

    The conversation goes there whole with each request, and nothing is stored there.
    """

    wire: ClassVar[str] = "openai-responses"
    _path: ClassVar[str] = "/responses"

    def _request(
        self, messages: Sequence[LLMMessage], tools: Iterable[JsonObject] | None, temperature: float | None
    ) -> JsonObject:
        return responses_request(self._options, messages, tools, temperature)

    def _reader(self) -> Reader:
        return ResponsesReader(self._options.name, self._options.model)
