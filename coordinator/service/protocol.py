"""The protocol between a client and the service of a home, over the home's Unix socket.

Both sides send JSON objects, one per line (UTF-8, at most `MAX_LINE` bytes). A client's request has an ``id`` of its
choice and an ``op``; the service answers each with objects that carry the same ``id``:

``{"id", "frame": {...}}``
    one frame of a message's stream (below); the last one's type is in `TERMINAL_FRAMES`.
``{"id", "result": {...}}``
    the answer of an operation that does not stream; ends it.
``{"id", "error": {"type", "message"}}``
    the operation was refused; ends it.

Operations: ``hello {"protocol"}`` first; answers ``{"protocol", "notice", "surroundings"}``, the last what agents have
around them (`coordinator.process_environment`);

``send {"agent": {"file","class","agent_type"}, "key", "message", "idempotency_key", "when_busy"}``
    admits the message, a JSON object, and streams its frames; ``when_busy`` is a `podium.turn.busy.BusyPolicy`,
    ``enqueue`` without it; what one connection sends to an agent is admitted in the order it was sent;
``cancel {"agent", "message_id"}``
    cancels a message that waits, is being handled or is parked; durable when answered;
``poke {"agent"}``
    has an agent look into its inbox; answers ``{"looks"}``, false if its code is not known to the service;
``passivate {"agent"}``
    lets an agent go to sleep after its running turn; answered when it sleeps;
``rewind {"agent", "turn", "only"}``
    does that, takes the agent back to a turn, and lets it go on with the messages that wait; answers ``{"from",
    "turn"}``, the turns before and after, the latter null when there was nothing to change;
``ps {}``; ``ping {}``, a liveness probe.

Where not said otherwise ``agent`` is an address. A line that is no request, or too long, ends the connection.

Closing the connection ends the client's part; messages it sent are handled all the same, but what it waits for with
``passivate`` and ``rewind`` is not done any more. The service lives as long as it has a client.

Frames of one message, in order, each with ``type`` and ``message_id`` (the admitted message)::

    accepted        position, before              the message is durably in the inbox; so many wait before it
    queued          before                        while it waits, when that changed
    agent_start     agent, turn, code {file, stamp}, reloaded    the agent was woken for it (absent when it was awake);
                                                  ``stamp`` is a hash of the files that it runs, and ``reloaded`` says
                                                  whether it was awake with other code
    turn_start      turn, attempt                 what was streamed in an earlier attempt does not count any more
    message_start   reply_id
    message_update  reply_id, delta               text as it is produced
    message_end     reply_id, text
    artifact        artifact_id, name, media_type, size    content handed out; there to be fetched after turn_end
    event           name, data                    what the agent emitted
    turn_retry      error {type, message}, attempt   this attempt was rolled back; another one follows
    turn_end        turn, version, patch          committed: durable. Terminal
    error           error {type, message}, parked    terminal: the last attempt failed, or the message was cancelled
"""

from __future__ import annotations

from typing import Final

__all__ = ["EXIT_HELD", "MAX_LINE", "PROTOCOL", "TERMINAL_FRAMES"]

PROTOCOL: Final = 2
"""Version of this protocol; a service says which it speaks, and a client of another one leaves."""
MAX_LINE: Final = 64 * 1024 * 1024
"""Longest line either side reads, bytes."""
EXIT_HELD: Final = 17
"""Exit code of a service that found its home held by another one."""
TERMINAL_FRAMES: Final = frozenset({"turn_end", "error"})
"""A stream ends with exactly one of these."""
