"""The provider for Anthropic's Messages API, over the library ``anthropic``."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from podium.models.anthropic.reader import MessagesReader
from podium.models.anthropic.request import DEFAULT_BASE_URL, Options, PromptCache, messages_request
from podium.models.errors import ModelError
from podium.models.openai_compat.options import name_for
from podium.models.vendor_sdk import CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S, Vendor, import_sdk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
    from typing import Self

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import LLMMessage, LLMStreamChunk

__all__ = ["AnthropicProvider"]

_NO_KEY: Final = "none"
"""A server of one's own may want no key, and without one the library looks for credentials on the machine."""


class AnthropicProvider:
    """A model behind the Messages API, of Anthropic or of a server that speaks it.

    Use it in one event loop, and close it at the end. No key and no address is read from the environment.

    Args:
        model: the model's name at the provider.
        base_url: by default Anthropic's.
        api_key: ``None`` for a server that wants none.
        max_output_tokens: the limit of an answer; by default 8192.
        prompt_cache: whether cache hints become breakpoints; ``auto``: at Anthropic's own servers.
        silence_timeout_s: seconds without a byte after which a request fails.
        connect_timeout_s: seconds for a connection.
        extra: further fields of each request, such as ``{"thinking": {"type": "adaptive"}}``.
        name: of the provider, in errors and in the blocks that only it understands; by default ``anthropic``, with the
            host for servers of other makes.

    Raises:
        ProviderNotInstalled: the extra ``podium[anthropic]`` is not installed.
    """

    wire: ClassVar[str] = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_output_tokens: int | None = None,
        prompt_cache: PromptCache = "auto",
        silence_timeout_s: float = SILENCE_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        extra: Mapping[str, Json] | None = None,
        name: str | None = None,
    ) -> None:
        sdk = import_sdk("anthropic")
        self._has_key = api_key is not None
        self._options = Options(
            name or name_for(self.wire, base_url, DEFAULT_BASE_URL),
            model,
            base_url or DEFAULT_BASE_URL,
            max_output_tokens,
            prompt_cache,
            extra or {},
        )
        key = api_key or _NO_KEY
        client = sdk.AsyncAnthropic(
            api_key=key,
            base_url=self._options.base_url,
            max_retries=0,
            open_telemetry=False,  # calls have spans of ours
            timeout=sdk.Timeout(silence_timeout_s, connect=connect_timeout_s),
            # The library sends the key as a bearer's, which servers of other makes may not know.
            default_headers={} if self._options.is_vendor else {"X-Api-Key": key},
        )
        self._vendor = Vendor(sdk, client, self._options.name, silence_timeout_s)

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._options.name

    def for_call(self, *, max_output_tokens: int | None = None, prompt_cache_key: str | None = None) -> Self:
        """Return a provider with other values for a call; ``None`` keeps a value. It shares this one's connections.

        Args:
            prompt_cache_key: for OpenAI's formats; this one has no such key.
        """
        del prompt_cache_key
        other = object.__new__(type(self))
        other._has_key, other._vendor = self._has_key, self._vendor
        limit = max_output_tokens or self._options.max_output_tokens
        other._options = replace(self._options, max_output_tokens=limit)
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
        body = messages_request(self._options, messages, tools, temperature)
        reader = MessagesReader(self.name, self._options.model)
        async with aclosing(self._vendor.stream("/v1/messages", body, reader)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def aclose(self) -> None:
        """Close all connections, also those of `for_call`."""
        await self._vendor.aclose()
