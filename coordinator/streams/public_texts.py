"""Texts of errors for clients of other machines: without the places of the server's files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from chronicle import errors as chronicle
from podium import errors as podium

if TYPE_CHECKING:
    from podium.turn.stream import Frame

__all__ = ["public_frame", "public_text"]

_PATH: Final = re.compile(r"(?<![\w.:/])/(?:[^/\s'\"`:;,()<>]+/)+([^/\s'\"`:;,()<>]*)")
"""An absolute path of two names or more, not part of a URL, of an address or of a relative path."""
_OWN: Final = frozenset({*podium.__all__, *chronicle.__all__, "HostLost", "ModelError"})
"""Errors of podium: their texts may name files of the server. What an agent raises is for its users, as it is."""


def public_text(text: str) -> str:
    """Return a text in which the last name stands for each path of a file."""
    return _PATH.sub(lambda found: found[1] or "a directory", text)


def public_frame(frame: Frame) -> Frame:
    """Return the frame of a failed attempt as clients get it; any other one as it is."""
    error = frame.get("error")
    if not isinstance(error, dict) or error.get("type") not in _OWN:
        return frame
    return {**frame, "error": {**error, "message": public_text(str(error["message"]))}}
