"""Language models: one port for all providers, its types, and their JSON form. Begin with `port`.

The types are plain values. A provider's library is imported when its provider is made, in the process that calls it:
importing this package, or running an agent, imports none. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.models.codec import message_from_json as message_from_json
    from podium.models.codec import message_to_json as message_to_json
    from podium.models.collecting import Answered as Answered
    from podium.models.collecting import Collector as Collector
    from podium.models.collecting import collect as collect
    from podium.models.context import ContextWindow as ContextWindow
    from podium.models.errors import ModelError as ModelError
    from podium.models.port import Finished as Finished
    from podium.models.port import ImageBlock as ImageBlock
    from podium.models.port import LLMMessage as LLMMessage
    from podium.models.port import LLMProvider as LLMProvider
    from podium.models.port import LLMStreamChunk as LLMStreamChunk
    from podium.models.port import ProviderBlock as ProviderBlock
    from podium.models.port import ReasoningDelta as ReasoningDelta
    from podium.models.port import TextBlock as TextBlock
    from podium.models.port import TextDelta as TextDelta
    from podium.models.port import ToolCall as ToolCall
    from podium.models.port import ToolCallDelta as ToolCallDelta
    from podium.models.port import ToolCallDone as ToolCallDone
    from podium.models.port import Usage as Usage

_MODULES: Final = {
    "Answered": "podium.models.collecting",
    "Collector": "podium.models.collecting",
    "ContextWindow": "podium.models.context",
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
