"""`ProvidedModels`: providers in the test's own process, in place of the model gateway."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from podium.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from podium.models.port import LLMProvider, LLMStreamChunk
    from podium.turn.ports import ModelCall

__all__ = ["ProvidedModels"]


class ProvidedModels:
    """A `podium.turn.ports.Models`.

    Args:
        providers: by the names of profiles.

    Attributes:
        calls: those that were made, in their order; a step that is replayed makes none.
    """

    def __init__(self, providers: Mapping[str, LLMProvider]) -> None:
        self._providers = providers
        self.calls: list[ModelCall] = []

    async def stream(self, call: ModelCall) -> AsyncGenerator[LLMStreamChunk, None]:
        """Make a call of the profile's provider."""
        provider = self._providers.get(call.profile)
        if provider is None:
            known = ", ".join(sorted(self._providers)) or "none"
            raise ModelError(
                f"there is no profile {call.profile!r} in this test; its profiles are: {known}", "unknown_profile"
            )
        self.calls.append(call)
        answer = provider.stream(call.messages, tools=call.tools, temperature=call.temperature)
        async with aclosing(cast("AsyncGenerator[LLMStreamChunk, None]", answer)) as chunks:
            async for chunk in chunks:
                yield chunk
