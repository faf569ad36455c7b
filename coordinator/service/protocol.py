"""The protocol between a client and the service of a home, over the home's Unix socket.

Both sides send packets of `coordinator.channel`. A client's request has an ``id`` of its choice and an ``op``; the
service answers each with objects that carry the same ``id``:

``{"id", "frames": [{...}, ...]}``
    frames of a message's stream (below); the type of the last one is in `TERMINAL_FRAMES`.
``{"id", "result": {...}}``
    the result of an operation that does not stream; its last answer.
``{"id", "error": {"type", "message", "retry_after_s"}}``
    the operation was refused; its last answer. ``retry_after_s`` is there if a repetition may succeed then.

Operations: ``hello {"protocol"}`` first; answers ``{"protocol", "notice", "surroundings"}``, the last the environment
that agents inherit (`coordinator.process_environment`);

``admit {"agent", "message", "idempotency_key", "when_busy", "trace", "caller"}``
    admits the message, a JSON object, for the agent of an address, whose type must be known (``UnknownAgentType``);
    answers ``{"message_id", "position", "before", "repeated"}`` once it is durable. The service delivers it, whether or
    not anyone follows it. ``when_busy`` is a `podium.turn.busy.BusyPolicy`, ``enqueue`` by default; messages of one
    connection to one agent are admitted in the order in which they were sent. ``trace`` is the ``traceparent`` of the
    sender's span, or null. ``caller`` is who asks, as the client has authenticated them (`podium.caller.Caller`);
    without it the message is of nobody. Instead of an address, ``agent`` may be
    ``{"file", "class", "agent_type"}``, with the agent's ``key`` beside it: the message is then handled by the current
    content of that code;
``follow {"agent", "message_id"}``
    streams the frames of an admitted message from the beginning of its current attempt, after a ``turn_retry`` for each
    attempt that failed; of a settled message, what the journal has. A message has any number of followers, who may come
    at any time; for a slow one, the increments of a text are merged;
``send {"agent": {"file", "class", "agent_type"}, "key", "message", "idempotency_key", "when_busy"}``
    is ``admit`` and ``follow`` in one request, and streams ``accepted`` first;
``cancel {"agent", "message_id"}``
    cancels a pending, running or parked message; durable when answered;
``poke {"agent"}``
    has an agent check its inbox; answers ``{"looks"}``, false if the service does not know its code;
``forget {"agent"}``
    has the nodes remove the layers and logs of an agent that sleeps and is deleted; one that is awake is refused;
``passivate {"agent"}``
    puts an agent to sleep after its running turn; answered when it sleeps;
``read {"agent", "message"}``
    calls the read-only handler that the message names, beside the agent's turns; answers ``{"turn", "data"}``, the turn
    whose state it has read, and its result. Nothing is admitted or recorded, though it counts as a message of the
    tenant's quota. The agent is woken if it sleeps;
``rewind {"agent", "turn", "only"}``
    passivates the agent, rewinds it to a turn, and lets it continue with its pending messages; ``only`` is a list of
    ``state``, ``files`` and ``transcript``, or null for all; answers ``{"from", "turn"}``, the turns before and after,
    the latter null if there was nothing to change;
``change_file {"agent", "path", "content"}``
    passivates the agent, puts or deletes a file as a turn of its own, and lets it continue; ``content`` is ``{"id",
    "size", "chunked"}`` of a content that the client has put into the blob store, or null to delete; answers ``{"turn",
    "version", "iteration"}``;
``register {"agents": [{"file", "class", "agent_type", "config"}, ...], "reload", "follow_edits"}``
    replaces the registry: the agent types that addresses may have, in `admit` and in what agents tell each other.
    Agents of these types with pending messages are woken. Awake agents keep code and configuration until they sleep;
    with ``reload`` they move to the current ones after their running turns, and with ``follow_edits`` those do to which
    a message is admitted, from now on (null: as before). Answers ``{"types", "reloaded"}``, the latter the addresses of
    the agents that move by ``reload``. While the home has a current deploy, its classes are known instead;
``redeploy {}``
    reads the current deploy of the home again (`podium.code.deploys`); awake agents move to its code and
    configuration after their running turns, or to those of the registry if there is no deploy any more. Answers
    ``{"reloaded"}``, their addresses;
``pin {}``
    keeps the service up without clients, until it is ended;
``down {"timeout_s"}``
    ends the service in order, and is answered at once. No message is admitted any more; running turns end, or are taken
    back after the timeout without counting an attempt (by default `coordinator.settings.Settings.stop_timeout_s`); then
    the connections end;
``status {}``
    answers ``{"pid", "protocol", "pinned", "clients", "delivering", "registry": [{"agent_type", "file", "class",
    "bundle", "problem"}]}``; ``bundle`` is the bundle of the deploy that has the file, or null; ``problem`` is why the
    class cannot be loaded, or null; ``delivering`` is the number of messages whose streams are open;
``types {}``
    answers ``{"types": [{"type", "class", "on_message", "handlers"}]}``: the agent types that are known, by name. Of
    each handler, ``input`` is the JSON Schema of the argument, and ``result`` that of the result, or null;
``metrics {}``
    answers ``{"metrics"}``: the metrics of the home, as a list of ``[name, [label, ...], value]``, with the names and
    labels of `coordinator.telemetry.instruments`. The value of a histogram is a list: the sum of what was observed, and
    the number of observations in each bucket;
``position {"agent"}``
    answers ``{"turn", "waits"}``: the agent's last turn, null if it never started, and whether messages wait in its
    inbox;
``facts {"agent"}``
    answers ``{"facts"}``, what the fleet knows of an agent (`coordinator.fleet.facts.AgentFacts`);
``awake {"agents"}``
    of a list of addresses, answers ``{"agents"}``: those that have a host, by address, each a
    `coordinator.fleet.facts.AwakeFacts`;
``nodes {}``
    answers ``{"nodes"}``, a list of `coordinator.fleet.facts.NodeFacts`;
``drain {"node", "undo"}``
    moves the agents of a node to other nodes after their running turns, and keeps it empty from now on, or uses a
    drained node again; answered when that is recorded;
``ps {}``; ``ping {}``, a liveness probe.

Unless stated otherwise ``agent`` is an address. A packet that is not a request is answered by an error of the type
``InvalidInput``, whose ``id`` is null if the packet does not begin with one. One that is too long ends the connection;
an answer that would be is replaced by an error.

A service that has handed the home over to another one says so to all clients, by ``{"id": null, "left": true}``. What
it does not do any more it answers by the error ``HandedOver``; streams of running turns go on until these have ended.

When a client disconnects, the messages that it sent are handled nevertheless, but its running ``passivate`` and
``rewind`` and ``change_file`` requests are cancelled. Unless it is pinned, the service ends with its last client.

Frames of one message, in order, each with ``type`` and ``message_id`` (the admitted message)::

    accepted        position, before              the message is durably in the inbox; ``before``: messages ahead of it
    queued          before                        while it is pending, when ``before`` has changed
    agent_start     agent, turn, code, reloaded   the agent was woken for it (absent if it was awake). ``code`` has its
                                                  class as the project names it (``source``), its ``file``, and a
                                                  hash of the files that it runs (``stamp``); ``reloaded`` tells
                                                  whether it was awake with other code
    turn_start      turn, attempt, event_id       frames of an earlier attempt are void; ``event_id`` is the id of the
                                                  message's event, and tells apart attempts of one number; ``steered``
                                                  is true if the message steers the turn of another one
    message_start   reply_id, ordinal             ``ordinal``: the replies of an attempt are numbered from 1
    message_update  reply_id, delta               text in increments
    message_end     reply_id, text
    artifact        artifact_id, name, media_type, size    content handed out; can be fetched after turn_end
    event           name, data, ordinal, size     an event that the agent emitted, numbered from 1 in each attempt; not
                                                  recorded, and replayed to a late reader while the attempt runs, the
                                                  latest up to 1 MiB: the numbers tell what was dropped. ``size`` is
                                                  that of name and data in bytes, which clients do not get
    tool_execution_start   tool_call_id, tool_name, args    a tool is called; the id is the model's
    tool_execution_update  tool_call_id, tool_name, partial_result    what it has so far, as a whole; a late reader gets
                                                  the latest, while the tool runs
    tool_execution_end     tool_call_id, tool_name, result, is_error    the result as JSON, or the text of the error; of
                                                  a large one the artifact that has it
    turn_retry      error {type, message}, attempt   this attempt was rolled back; it will be retried
    turn_end        turn, version, patch, data    committed: durable. Terminal; ``data`` is the result that the agent
                                                  set (absent if it set none)
    tool_decision_pending  call_id, reason, schema, args_hash, expires    the turn waits for an answer that fits the
                                                  JSON Schema; ``expires`` in epoch milliseconds, or null
    turn_paused     kind, call_id, reason, expires    terminal: the turn waits, for what came before or for the time
                                                  alone. Following the message again, once it goes on, begins anew
    agent_resume    call_id, outcome, by          the turn goes on behind a pause that was ``answered``,
                                                  ``rejected`` or has ``expired``; after the ``turn_start``
                                                  of each attempt since
    error           error {type, message}, parked    terminal: the last attempt failed, or the message was cancelled
"""

from __future__ import annotations

from typing import Final

__all__ = ["AWAITS_REGISTRATION", "EXIT_HELD", "EXIT_RAY_DIED", "PROTOCOL", "STANDBY", "TERMINAL_FRAMES"]

PROTOCOL: Final = 4
"""Version of this protocol; a client disconnects from a service with another version."""
STANDBY: Final = "--standby"
"""Option of a service that waits for the claim on the home, and hands it over when it is told to."""
AWAITS_REGISTRATION: Final = "--awaits-registration"
"""Option of a service whose starter registers agent classes: until then, messages of unknown types wait."""
EXIT_HELD: Final = 17
"""Exit code of a service whose home is held by another service."""
EXIT_RAY_DIED: Final = 18
"""Exit code of a service whose embedded Ray has died."""
TERMINAL_FRAMES: Final = frozenset({"turn_end", "turn_paused", "error"})
"""Types of the terminal frame, exactly one per stream."""
