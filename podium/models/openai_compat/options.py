"""Parts of a request that both of OpenAI's formats share. Pure."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from podium.models.vendor_provider import RequestOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import JsonObject
    from podium.models.caching import Markable
    from podium.models.port import ImageBlock, LLMMessage, ToolCall

__all__ = ["DEFAULT_BASE_URL", "Options", "PromptCache", "arguments_of", "image_url", "mark_breakpoints", "name_for"]

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
PromptCache: TypeAlias = Literal["auto", "breakpoints", "retention", "off"]
"""How cache hints are said: ``breakpoints`` on content blocks (gpt-5.6 and later), ``retention`` of the whole request
(older models), or not at all (most servers of other makes). ``auto`` decides by host and model."""
_VERSION: Final = re.compile(r"\bgpt-(\d+)(?:\.(\d+))?")
_FIRST_WITH_BREAKPOINTS: Final = (5, 6)
_TTLS: Final = {"short": "30m", "long": "12h"}


@dataclass(frozen=True, slots=True)
class Options(RequestOptions):
    """Options of every request of a provider object."""

    base_url: str = DEFAULT_BASE_URL

    @property
    def is_vendor(self) -> bool:
        """True for OpenAI's own servers."""
        host = urlsplit(self.base_url).hostname or ""
        return host == "api.openai.com" or host.endswith(".api.openai.com")

    @property
    def has_breakpoints(self) -> bool:
        """True if hints become breakpoints on blocks."""
        return self._cache == "breakpoints"

    def cache_fields(self, messages: Sequence[LLMMessage]) -> dict[str, Any]:
        """Return the fields of the request that are about the cache."""
        if self._cache == "off":
            return {}
        fields: JsonObject = {}
        if self.prompt_cache_key is not None:
            fields["prompt_cache_key"] = self.prompt_cache_key
        if self._cache == "retention" and any(message.cache == "long" for message in messages):
            fields["prompt_cache_retention"] = "24h"
        return fields

    @property
    def _cache(self) -> str:
        if self.prompt_cache != "auto":
            return self.prompt_cache
        if not self.is_vendor:
            return "off"
        found = _VERSION.search(self.model)
        version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
        return "breakpoints" if version >= _FIRST_WITH_BREAKPOINTS else "retention"


def name_for(wire: str, base_url: str | None, vendor_url: str) -> str:
    """Return the name of a provider object: its wire format, and for a server of another make where it is.

    Blocks that only the provider understands bear the name, and do not go to a server that did not write them.
    """
    if base_url is None or urlsplit(base_url).netloc == urlsplit(vendor_url).netloc:
        return wire
    return f"{wire}:{urlsplit(base_url).netloc}"


def image_url(image: ImageBlock) -> str:
    """Return the URL of an image; that of its bytes has them in it."""
    if image.url is not None:
        return image.url
    return f"data:{image.media_type};base64,{base64.b64encode(image.data or b'').decode()}"


def arguments_of(call: ToolCall) -> str:
    """Return the arguments of a call as the model wrote them, or would."""
    written = call.invalid_arguments
    return json.dumps(call.arguments, ensure_ascii=False) if written is None else written


def mark_breakpoints(markable: Markable, messages: Sequence[LLMMessage]) -> None:
    """Write the cache hints of messages on the parts that can bear them."""
    for part, hint in markable.marked(messages):
        part["prompt_cache_breakpoint"] = {"mode": "explicit", "ttl": _TTLS[hint]}
