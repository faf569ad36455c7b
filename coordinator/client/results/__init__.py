"""The results of the client's methods, as frozen models of the wire's JSON objects.

Keys that this release does not know are ignored, so that a newer server can add some. Times are epoch milliseconds. The
modules divide the results by subject; they are imported from here.
"""

from __future__ import annotations

from coordinator.client.results.agents import (
    Agent,
    LastError,
    Node,
    Outbox,
    Why,
)
from coordinator.client.results.files import (
    Artifact,
    DirectoryEntry,
    FileChanged,
    FileVersion,
    FoundArtifact,
)
from coordinator.client.results.history import (
    Difference,
    DifferenceSide,
    Event,
    Forked,
    ForkPoint,
    Rewound,
    State,
    TranscriptDifference,
    Verification,
)
from coordinator.client.results.messages import (
    Answer,
    AnswerArtifact,
    AnswerReply,
    InboxMessage,
    Message,
    MessageError,
    Receipt,
    Reminder,
    Step,
)
from coordinator.client.results.result import (
    Result,
    read_result,
)
from coordinator.client.results.retention import (
    Deleted,
    DroppedCounts,
    DroppedLater,
    Erased,
    ErasedEvent,
    Folded,
    Imported,
)

__all__ = [
    "Agent",
    "Answer",
    "AnswerArtifact",
    "AnswerReply",
    "Artifact",
    "Deleted",
    "Difference",
    "DifferenceSide",
    "DirectoryEntry",
    "DroppedCounts",
    "DroppedLater",
    "Erased",
    "ErasedEvent",
    "Event",
    "FileChanged",
    "FileVersion",
    "Folded",
    "ForkPoint",
    "Forked",
    "FoundArtifact",
    "Imported",
    "InboxMessage",
    "LastError",
    "Message",
    "MessageError",
    "Node",
    "Outbox",
    "Receipt",
    "Reminder",
    "Result",
    "Rewound",
    "State",
    "Step",
    "TranscriptDifference",
    "Verification",
    "Why",
    "read_result",
]
