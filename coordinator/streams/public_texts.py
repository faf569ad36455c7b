"""Texts of errors for clients of other machines: without the places of the server's files, or none at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from chronicle import errors as chronicle
from podium import errors as podium

if TYPE_CHECKING:
    from collections.abc import Mapping

    from podium.turn.stream import Frame

__all__ = ["is_plain", "public_frame", "public_text", "text_of_model", "without_text"]

_PATH: Final = re.compile(r"(?<![\w.:/])/(?:[^/\s'\"`:;,()<>]+/)+([^/\s'\"`:;,()<>]*)")
"""An absolute path of two names or more, not part of a URL, of an address or of a relative path."""
_OWN: Final = frozenset({*podium.__all__, *chronicle.__all__, "HostLost", "ModelError"})
"""Errors of podium: their texts may name files of the server. What an agent raises is for its users, as it is."""

_PLAIN: Final = frozenset(
    {
        *(
            each.__name__
            for each in (
                podium.AgentAsleep,
                podium.AgentBusy,
                podium.AskCycle,
                podium.AskRefused,
                podium.AskTimeout,
                podium.Evicted,
                podium.HostDied,
                podium.InvalidAddress,
                podium.TurnsLost,
                podium.UnknownAgent,
                podium.UnknownAgentType,
                chronicle.InboxFull,
                chronicle.NotFound,
                chronicle.Unavailable,
            )
        ),
        *("Cancelled", "HistoryDropped", "HostLost", "QuotaExceeded"),
    }
)
"""Errors whose texts have nothing of an agent's code, of its configuration or of a model's provider."""

_OWN_ENDS: Final = frozenset({"deadline_exceeded", "cancelled", "shutting_down", "internal_error"})
"""Codes of responses whose texts have nothing of a profile or of a model's provider."""


def public_text(text: str) -> str:
    """Return a text in which the last name stands for each path of a file."""
    return _PATH.sub(lambda found: found[1] or "a directory", text)


def public_frame(frame: Frame) -> Frame:
    """Return the frame of a failed attempt as clients get it; any other one as it is."""
    error = frame.get("error")
    if not isinstance(error, dict) or error.get("type") not in _OWN:
        return frame
    return {**frame, "error": {**error, "message": public_text(str(error["message"]))}}


def is_plain(kind: str) -> bool:
    """Whether the text of an error, by the name of its class, has nothing that is for operators alone."""
    return kind in _PLAIN


def without_text(error: Mapping[str, Any], message_id: str | None) -> dict[str, str]:
    """Return the error of a failed attempt as clients get it that do not get texts which agents' code makes.

    Args:
        message_id: the message under which operators find the text; ``None`` for an attempt without one.
    """
    kind = error["type"]
    if is_plain(kind):
        return {"type": kind, "message": error["message"]}
    where = f", under {message_id}" if message_id is not None else ""
    return {"type": kind, "message": f"operators get the text, by podium why and podium log{where}"}


def text_of_model(code: str, text: str) -> str:
    """Return the text of a failed call of a model as callers get it that do not get texts which models make.

    Args:
        code: a kind of `podium.models.ModelError`, or the code of a response that failed.
    """
    return text if code in _OWN_ENDS else f"the call of the model failed: {code}; operators get the text"
