"""Tools: functions that a model calls. Begin with `tool` and `ToolRouter`.

It needs no host: a router works in any program with an event loop. Inside of a turn, `AgentContext.tools` makes each
call a step. How a call ends is a `ToolResult`, errors of the tool included; see docs/guide/tools.md. Each name is
imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from podium.errors import InvalidTool as InvalidTool
    from podium.models.port import ToolCall as ToolCall
    from podium.tools.declaring import tool as tool
    from podium.tools.result import ToolResult as ToolResult
    from podium.tools.router import ToolRouter as ToolRouter
    from podium.tools.tool_spec import Tool as Tool

_MODULES: Final = {
    "InvalidTool": "podium.errors",
    "Tool": "podium.tools.tool_spec",
    "ToolCall": "podium.models.port",
    "ToolResult": "podium.tools.result",
    "ToolRouter": "podium.tools.router",
    "tool": "podium.tools.declaring",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
