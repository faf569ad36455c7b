"""Base of the providers of all vendors: the options of their requests, and the sending of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from podium.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from typing import Self

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import LLMMessage, LLMStreamChunk
    from podium.models.vendor_sdk import Reader, Vendor

__all__ = ["NO_KEY", "RequestOptions", "VendorProvider"]

NO_KEY: Final = "none"
"""Placeholder for servers without keys: the libraries send no empty one, or look for credentials on the machine."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of every request of a provider object."""

    name: str
    model: str
    base_url: str = ""
    max_output_tokens: int | None = None
    prompt_cache: str = "auto"
    prompt_cache_key: str | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_vendor(self) -> bool:
        """True for the vendor's own servers."""
        raise NotImplementedError


_Options = TypeVar("_Options", bound=RequestOptions)


class VendorProvider(ABC, Generic[_Options]):
    """A model behind one format of a vendor; a `podium.models.port.LLMProvider`.

    Args:
        options: of its requests.
        vendor: sends them.
        has_key: whether there is an API key, which the vendor's own servers demand.
    """

    wire: ClassVar[str]
    """Name of the format."""
    _path: ClassVar[str]

    def __init__(self, options: _Options, vendor: Vendor, *, has_key: bool) -> None:
        self._options = options
        self._vendor = vendor
        self._has_key = has_key

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._options.name

    def for_call(self, *, max_output_tokens: int | None = None, prompt_cache_key: str | None = None) -> Self:
        """Return a provider with other values for a call; ``None`` keeps a value. It shares this one's connections.

        Args:
            prompt_cache_key: for OpenAI's formats; others have no such key.
        """
        options = replace(
            self._options,
            max_output_tokens=max_output_tokens or self._options.max_output_tokens,
            prompt_cache_key=prompt_cache_key or self._options.prompt_cache_key,
        )
        other = object.__new__(type(self))
        vars(other).update(vars(self), _options=options)
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

    @abstractmethod
    def _request(
        self, messages: Sequence[LLMMessage], tools: Iterable[JsonObject] | None, temperature: float | None
    ) -> JsonObject:
        """Return the body of a request."""

    @abstractmethod
    def _reader(self) -> Reader:
        """Return a reader of one answer."""
