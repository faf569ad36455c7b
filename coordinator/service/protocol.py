"""What a client and the service of a home say to each other over the home's Unix socket.

Both sides send JSON objects, one per line (UTF-8, at most `MAX_LINE` bytes). A client's request has an ``id`` of its
choice and an ``op``; the service answers each with objects that carry the same ``id``:

``{"id", "frame": {...}}``
    one frame of a message's stream (below); the last one's type is in `TERMINAL_FRAMES`.
``{"id", "result": {...}}``
    the answer of an operation that does not stream; ends it.
``{"id", "error": {"type", "message"}}``
    the operation was refused; ends it.

Operations: ``hello {"protocol"}`` first; ``send {"agent": {"file","class","agent_type"}, "key", "message",
"idempotency_key"}``, which admits the message, a JSON object, and streams its frames; ``cancel {"message_id"}``;
``ps {}``. A line that is no request, or too long, ends the connection.

Closing the connection ends the client's part; messages it sent are handled all the same. The service lives as long
as it has a client.

Frames of one message, in order, each with ``type`` and ``message_id`` (the admitted message)::

    accepted        position                      the message is durably in the inbox
    agent_start     agent, turn                   the agent was woken for it (absent when it was awake)
    turn_start      turn, attempt                 what was streamed in an earlier attempt does not count any more
    message_start   reply_id
    message_update  reply_id, delta               text as it is produced
    message_end     reply_id, text
    event           name, data                    what the agent emitted
    turn_retry      error {type, message}, attempt   this attempt was rolled back; another one follows
    turn_end        turn, version, patch          committed: durable. Terminal
    error           error {type, message}, parked    terminal: the last attempt failed, or the message was cancelled
"""

from __future__ import annotations

from typing import Final

__all__ = ["EXIT_HELD", "MAX_LINE", "PROTOCOL", "TERMINAL_FRAMES"]

PROTOCOL: Final = 1
"""Version of this protocol; a service says which it speaks, and a client of another one leaves."""
MAX_LINE: Final = 64 * 1024 * 1024
"""Longest line either side reads, bytes."""
EXIT_HELD: Final = 17
"""Exit code of a service that found its home held by another one."""
TERMINAL_FRAMES: Final = frozenset({"turn_end", "error"})
"""A stream ends with exactly one of these."""
