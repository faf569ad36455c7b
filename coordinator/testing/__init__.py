"""Test tools for programs that read event streams: scripted responses, a server that gives them, and a parser.

They are here and not in `podium.testing` because they are about HTTP, of which the package `podium` knows nothing. They
need no Ray, no web framework and no agent.
"""

from __future__ import annotations

from coordinator.testing.scripted_server import ScriptedRequest, ScriptedServer
from coordinator.testing.scripted_sse import Cut, ScriptedResponse, Wait, parse_sse_stream, scripted_sse_response

__all__ = [
    "Cut",
    "ScriptedRequest",
    "ScriptedResponse",
    "ScriptedServer",
    "Wait",
    "parse_sse_stream",
    "scripted_sse_response",
]
