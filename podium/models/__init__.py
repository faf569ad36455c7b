"""Language models: one port for all providers, its types, and their JSON form. Begin with `port`.

The types are plain values. A provider's library is imported when its provider is made, in the process that calls it:
importing this package, or running an agent, imports none. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.models.codec import message_from_json, message_to_json
    from podium.models.collecting import Answered, Collector, collect
    from podium.models.errors import ModelError
    from podium.models.port import (
        Finished,
        ImageBlock,
        LLMMessage,
        LLMProvider,
        LLMStreamChunk,
        ProviderBlock,
        ReasoningDelta,
        TextBlock,
        TextDelta,
        ToolCall,
        ToolCallDelta,
        ToolCallDone,
        Usage,
    )

__all__ = [
    "Answered",
    "Collector",
    "Finished",
    "ImageBlock",
    "LLMMessage",
    "LLMProvider",
    "LLMStreamChunk",
    "ModelError",
    "ProviderBlock",
    "ReasoningDelta",
    "TextBlock",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallDone",
    "Usage",
    "collect",
    "message_from_json",
    "message_to_json",
]

_MODULES: Final = {
    "Answered": "podium.models.collecting",
    "Collector": "podium.models.collecting",
    "Finished": "podium.models.port",
    "ImageBlock": "podium.models.port",
    "LLMMessage": "podium.models.port",
    "LLMProvider": "podium.models.port",
    "LLMStreamChunk": "podium.models.port",
    "ModelError": "podium.models.errors",
    "ProviderBlock": "podium.models.port",
    "ReasoningDelta": "podium.models.port",
    "TextBlock": "podium.models.port",
    "TextDelta": "podium.models.port",
    "ToolCall": "podium.models.port",
    "ToolCallDelta": "podium.models.port",
    "ToolCallDone": "podium.models.port",
    "Usage": "podium.models.port",
    "collect": "podium.models.collecting",
    "message_from_json": "podium.models.codec",
    "message_to_json": "podium.models.codec",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
