"""The errors of operations, drawn::

podium.errors.PodiumError
├── InvalidCursor       a cursor that is none, or of another list
├── NotInSessions       what a request of /v2 names does not exist, or may not be changed
│   ├── UnknownSession, UnknownBranch, UnknownSessionEvent, UnknownSessionArtifact, UnknownBundle
│   ├── UnknownEventType    a type of events that clients do not append
│   ├── BundleTooLarge      a bundle with more bytes than one may have
│   └── SessionReadOnly     the session is an agent's
├── UnknownFile         an agent has no file at a path, at a moment
├── NotAFile            a path names no file; of an upload, it cannot become one
├── EmptyContext        a request for a response has nothing that a model could answer
├── ResponseFailed      a model gave no answer, or not all of it
├── MessagePaused       the turn of a message is paused
└── MessageNotAnswered  a message was not handled
    ├── MessageFailed   its last attempt failed
    ├── MessageParked   it failed as often as it may, and waits for a retry
    └── MessageCancelled    it was cancelled, or another message took its place
chronicle.errors.NotFound
└── UnknownResponse     no response of that id
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import NotFound
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BundleTooLarge",
    "EmptyContext",
    "InvalidCursor",
    "MessageCancelled",
    "MessageFailed",
    "MessageNotAnswered",
    "MessageParked",
    "MessagePaused",
    "NotInSessions",
    "ResponseFailed",
    "SessionReadOnly",
    "UnknownBranch",
    "UnknownBundle",
    "UnknownEventType",
    "UnknownResponse",
    "UnknownSession",
    "UnknownSessionArtifact",
    "UnknownSessionEvent",
    "UploadTooLarge",
    "not_answered",
]

_CANCELLED = "Cancelled"
"""The error type of an ``error`` frame whose message was cancelled."""


class InvalidCursor(PodiumError):
    """A cursor that is none, or that another list gave out.

    Attributes:
        param: the parameter that has it.
    """

    param: Final = "cursor"


class NotInSessions(PodiumError):
    """A thing that a request names does not exist in the sessions of its tenant, or may not be changed.

    Attributes:
        param: the field of the request's body that names it; ``None`` if the path does.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnknownSession(NotInSessions):
    """No session of that id."""


class UnknownBranch(NotInSessions):
    """The session has no branch of that id."""


class UnknownSessionEvent(NotInSessions):
    """The branch has no event of that id."""


class UnknownSessionArtifact(NotInSessions):
    """No artifact of that id among those that clients stored, or it has expired."""


class UnknownBundle(NotInSessions):
    """No bundle of that id."""


class BundleTooLarge(NotInSessions):
    """A bundle with more bytes than a bundle may have."""


class UnknownEventType(NotInSessions):
    """An event of a type that clients do not append."""


class SessionReadOnly(NotInSessions):
    """The session is an agent's, which alone writes it."""


class UploadTooLarge(PodiumError):
    """A file that is larger than what may be uploaded. Nothing was changed."""


class EmptyContext(PodiumError):
    """There is neither an input nor a transcript: nothing that a model could answer."""

    param = "input"


class ResponseFailed(PodiumError):
    """A response that has no answer, or not all of it.

    Attributes:
        code: why: a kind of `podium.models.errors.ModelError`, ``cancelled``, ``shutting_down``, ``not_stored`` or
            ``internal_error``.
        response_id: the response; its record has what there is of the output.
        retry_after_s: seconds after which a repetition may succeed, if the provider named them.
    """

    def __init__(self, message: str, code: str, response_id: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.response_id = response_id
        self.retry_after_s = retry_after_s


class UnknownResponse(NotFound):
    """There is no response of that id, or it was deleted."""


class MessagePaused(PodiumError):
    """The turn of a message is paused: there is no answer until it goes on.

    Attributes:
        run: what it waits for, the JSON object of a `coordinator.operations.objects.PausedRun`.
    """

    def __init__(self, message: str, run: dict[str, Any]) -> None:
        super().__init__(message)
        self.run = run


class MessageNotAnswered(PodiumError):
    """A message that was not handled.

    Attributes:
        message_id: its id.
        error_type: the name of the error's class in the agent.
        error_message: its text.
    """

    def __init__(self, message_id: str, error_type: str, error_message: str) -> None:
        super().__init__(f"{error_type}: {error_message}")
        self.message_id = message_id
        self.error_type = error_type
        self.error_message = error_message


class MessageFailed(MessageNotAnswered):
    """A message whose attempt failed and is not retried."""


class MessageParked(MessageNotAnswered):
    """A message that failed as often as it may. It waits for a retry."""


class MessageCancelled(MessageNotAnswered):
    """A message that was cancelled, or in whose place another one was handled."""


def not_answered(frame: Mapping[str, Any]) -> MessageNotAnswered:
    """Return the error of a message's ``error`` frame."""
    error: Mapping[str, str] = frame["error"]
    kind: type[MessageNotAnswered] = MessageFailed
    if frame.get("parked"):
        kind = MessageParked
    elif error["type"] == _CANCELLED:
        kind = MessageCancelled
    return kind(frame["message_id"], error["type"], error["message"])
