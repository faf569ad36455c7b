"""A client of a home's agents. Begin with `async_client`.

`AsyncPodium` and its blocking twin `Podium` reach a home through a `backend`. Nothing here imports Ray or a web
framework. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium
    from coordinator.client.errors import (
        AnswerTimeout,
        AuthenticationFailed,
        BadAnswer,
        ClientError,
        InvalidRequest,
        MessageCancelled,
        MessageFailed,
        PermissionDenied,
        RateLimited,
        RequestConflict,
        ResourceNotFound,
        ServerFailed,
        Unreachable,
    )
    from coordinator.client.files import AsyncFiles
    from coordinator.client.results import (
        Agent,
        Answer,
        AnswerArtifact,
        AnswerReply,
        Artifact,
        Deleted,
        Difference,
        DifferenceSide,
        DirectoryEntry,
        Event,
        FileChanged,
        FileVersion,
        Forked,
        ForkPoint,
        InboxMessage,
        LastError,
        Message,
        MessageError,
        Node,
        Outbox,
        Receipt,
        Reminder,
        Rewound,
        State,
        TranscriptDifference,
        Verification,
        Why,
    )
    from coordinator.client.run import AsyncRun
    from coordinator.client.sse_parser import ServerSentEvent, SseParser, parse_sse
    from coordinator.client.sync_client import Files, Podium, Run

__all__ = [
    "Agent",
    "Answer",
    "AnswerArtifact",
    "AnswerReply",
    "AnswerTimeout",
    "Artifact",
    "AsyncFiles",
    "AsyncPodium",
    "AsyncRun",
    "AuthenticationFailed",
    "BadAnswer",
    "ClientError",
    "Deleted",
    "Difference",
    "DifferenceSide",
    "DirectoryEntry",
    "Event",
    "FileChanged",
    "FileVersion",
    "Files",
    "ForkPoint",
    "Forked",
    "InboxMessage",
    "InvalidRequest",
    "LastError",
    "Message",
    "MessageCancelled",
    "MessageError",
    "MessageFailed",
    "Node",
    "Outbox",
    "PermissionDenied",
    "Podium",
    "RateLimited",
    "Receipt",
    "Reminder",
    "RequestConflict",
    "ResourceNotFound",
    "Rewound",
    "Run",
    "ServerFailed",
    "ServerSentEvent",
    "SseParser",
    "State",
    "TranscriptDifference",
    "Unreachable",
    "Verification",
    "Why",
    "parse_sse",
]

_ERRORS: Final = (
    "AnswerTimeout",
    "AuthenticationFailed",
    "BadAnswer",
    "ClientError",
    "InvalidRequest",
    "MessageCancelled",
    "MessageFailed",
    "PermissionDenied",
    "RateLimited",
    "RequestConflict",
    "ResourceNotFound",
    "ServerFailed",
    "Unreachable",
)
_RESULTS: Final = (
    "Agent",
    "Answer",
    "AnswerArtifact",
    "AnswerReply",
    "Artifact",
    "Deleted",
    "Difference",
    "DifferenceSide",
    "DirectoryEntry",
    "Event",
    "FileChanged",
    "FileVersion",
    "ForkPoint",
    "Forked",
    "InboxMessage",
    "LastError",
    "Message",
    "MessageError",
    "Node",
    "Outbox",
    "Receipt",
    "Reminder",
    "Rewound",
    "State",
    "TranscriptDifference",
    "Verification",
    "Why",
)
_MODULES: Final = {
    "AsyncFiles": "coordinator.client.files",
    "AsyncPodium": "coordinator.client.async_client",
    "AsyncRun": "coordinator.client.run",
    **dict.fromkeys(("Files", "Podium", "Run"), "coordinator.client.sync_client"),
    **dict.fromkeys(("ServerSentEvent", "SseParser", "parse_sse"), "coordinator.client.sse_parser"),
    **dict.fromkeys(_ERRORS, "coordinator.client.errors"),
    **dict.fromkeys(_RESULTS, "coordinator.client.results"),
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
