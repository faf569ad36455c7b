"""Providers for OpenAI and for every server that speaks one of its formats, over the library ``openai``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from podium.models.openai_compat.chat_reader import ChatReader
from podium.models.openai_compat.chat_request import chat_request
from podium.models.openai_compat.options import DEFAULT_BASE_URL, Options, PromptCache, name_for
from podium.models.openai_compat.responses_reader import ResponsesReader
from podium.models.openai_compat.responses_request import responses_request
from podium.models.vendor_provider import NO_KEY, VendorProvider
from podium.models.vendor_sdk import CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S, Reader, Vendor, import_sdk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import LLMMessage

__all__ = ["OpenAICompatProvider", "OpenAIResponsesProvider"]


class OpenAICompatProvider(VendorProvider[Options]):
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
        extra: Mapping[str, Json] | None = None,
        name: str | None = None,
    ) -> None:
        sdk = import_sdk("openai")
        options = Options(
            name or name_for(self.wire, base_url, DEFAULT_BASE_URL),
            model,
            base_url or DEFAULT_BASE_URL,
            max_output_tokens,
            prompt_cache,
            prompt_cache_key,
            extra or {},
        )
        client = sdk.AsyncOpenAI(
            api_key=api_key or NO_KEY,
            base_url=options.base_url,
            max_retries=0,
            timeout=sdk.Timeout(silence_timeout_s, connect=CONNECT_TIMEOUT_S),
        )
        # Of the environment, for OpenAI alone: another server is not to know them.
        client.organization = client.project = None
        super().__init__(options, Vendor(sdk, client, options.name, silence_timeout_s), has_key=api_key is not None)

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
