"""The provider for Anthropic's Messages API, over the library ``anthropic``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from podium.models.anthropic.reader import MessagesReader
from podium.models.anthropic.request import DEFAULT_BASE_URL, Options, PromptCache, messages_request
from podium.models.openai_compat.options import name_for
from podium.models.vendor_provider import NO_KEY, VendorProvider
from podium.models.vendor_sdk import CONNECT_TIMEOUT_S, SILENCE_TIMEOUT_S, Vendor, import_sdk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import LLMMessage
    from podium.models.vendor_sdk import Reader

__all__ = ["AnthropicProvider"]


class AnthropicProvider(VendorProvider[Options]):
    """A model behind the Messages API, of Anthropic or of a server that speaks it.

    Use it in one event loop, and close it at the end. No key and no address is read from the environment.

    Args:
        model: the model's name at the provider.
        base_url: by default Anthropic's.
        api_key: ``None`` for a server that wants none.
        max_output_tokens: the limit of an answer; by default 8192.
        prompt_cache: whether cache hints become breakpoints; ``auto``: at Anthropic's own servers.
        silence_timeout_s: seconds without a byte after which a request fails.
        extra: further fields of each request, such as ``{"thinking": {"type": "adaptive"}}``.
        name: of the provider, in errors and in the blocks that only it understands; by default ``anthropic``, with the
            host for servers of other makes.

    Raises:
        ProviderNotInstalled: the extra ``podium[anthropic]`` is not installed.
    """

    wire: ClassVar[str] = "anthropic"
    _path: ClassVar[str] = "/v1/messages"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_output_tokens: int | None = None,
        prompt_cache: PromptCache = "auto",
        silence_timeout_s: float = SILENCE_TIMEOUT_S,
        extra: Mapping[str, Json] | None = None,
        name: str | None = None,
    ) -> None:
        sdk = import_sdk("anthropic")
        options = Options(
            name or name_for(self.wire, base_url, DEFAULT_BASE_URL),
            model,
            base_url or DEFAULT_BASE_URL,
            max_output_tokens,
            prompt_cache,
            extra=extra or {},
        )
        key = api_key or NO_KEY
        client = sdk.AsyncAnthropic(
            api_key=key,
            base_url=options.base_url,
            max_retries=0,
            open_telemetry=False,  # calls have spans of ours
            timeout=sdk.Timeout(silence_timeout_s, connect=CONNECT_TIMEOUT_S),
            # The library sends the key as a bearer's, which servers of other makes may not know.
            default_headers={} if options.is_vendor else {"X-Api-Key": key},
        )
        super().__init__(options, Vendor(sdk, client, options.name, silence_timeout_s), has_key=api_key is not None)

    def _request(
        self, messages: Sequence[LLMMessage], tools: Iterable[JsonObject] | None, temperature: float | None
    ) -> JsonObject:
        return messages_request(self._options, messages, tools, temperature)

    def _reader(self) -> Reader:
        return MessagesReader(self.name, self._options.model)
