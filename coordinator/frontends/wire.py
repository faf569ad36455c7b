"""Frames of front ends as server-sent events. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from coordinator.streams.sse import encode_event

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CUT_OFF", "DONE", "WireFrame", "encode_frames"]

WireFrame: TypeAlias = dict[str, Any]
"""One JSON object of a front end's stream."""

DONE: Final = b"data: [DONE]\n\n"
"""The last event of a UI message stream."""
CUT_OFF: Final = "the stream was cut off before the answer was complete; the agent goes on with it: resume the stream"
"""Error for a client whose stream ends before the terminal frame of its message."""


def encode_frames(frames: Iterable[WireFrame]) -> bytes:
    """Return frames as events without ids: front ends resume by a full replay."""
    return b"".join([encode_event(frame, None) for frame in frames])
