"""The errors of the client, drawn::

    podium.errors.PodiumError
    └── ClientError                 carries code, status, message, param
        ├── InvalidRequest          400, 413, 415, 422: the request cannot be used; ``param`` says which part
        ├── AuthenticationFailed    401: no key, or one that is unknown, expired or revoked
        ├── PermissionDenied        403: the key's scopes do not include the operation
        ├── ResourceNotFound        404: no such agent, message, turn, file, artifact
        ├── RequestConflict         409: a concurrent change was first, or the thing exists; read again and retry
        ├── RateLimited             429: a limit is reached; ``retry_after_s`` says when to try again
        ├── ServerFailed            500, 502, 503, 504: the server could not carry the request out
        ├── MessageFailed           a message was handled and its turn failed, or it is parked; not repeated
        │   └── MessageCancelled    the message was cancelled
        ├── RunPaused               the turn of a message is paused; answer it, then ask again
        ├── AnswerTimeout           no answer in time; the message stays in the inbox
        ├── Unreachable             no connection, also after attempts to connect again
        └── BadAnswer               an answer that this client does not understand: another server or version

Both backends raise them. A class tells what a program can do about an error, ``code`` what it is: a name in snake case
such as ``unknown_agent`` or ``idempotency_conflict``, the same for HTTP and for a local home.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
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
    "RunPaused",
    "ServerFailed",
    "Unreachable",
]


class ErrorFields(TypedDict, total=False):
    """Fields of an error beside its message; see `ClientError`."""

    code: str
    status: int | None
    param: str | None
    message_id: str | None
    retry_after_s: float | None


class ClientError(PodiumError):
    """Root of the client's errors.

    Attributes:
        message: what is wrong, where, and how to mend it.
        code: the name of the error, in snake case.
        status: the HTTP status, of a local home the one that HTTP would have; ``None`` without an answer.
        param: the part of the request that is at fault; ``None`` if none is named.
        message_id: the message that the error is about; ``None`` if it is about none.
        retry_after_s: seconds after which the server accepts the request again; ``None`` if it named none.
    """

    default_code = "client_error"

    def __init__(self, message: str, **fields: Unpack[ErrorFields]) -> None:
        super().__init__(message)
        self.message = message
        self.code = fields.get("code", self.default_code)
        self.status = fields.get("status")
        self.param = fields.get("param")
        self.message_id = fields.get("message_id")
        self.retry_after_s = fields.get("retry_after_s")

    @property
    def kind(self) -> str:
        """The name of the error's class in the home, such as ``UnknownAgent``, as the code tells it."""
        return _KINDS.get(self.code) or "".join(part.capitalize() for part in self.code.split("_"))


class InvalidRequest(ClientError):
    """The request cannot be used, and was not carried out."""


class AuthenticationFailed(ClientError):
    """The key is missing, unknown, expired or revoked."""


class PermissionDenied(ClientError):
    """The key's scopes do not include the operation."""


class ResourceNotFound(ClientError):
    """A thing that the request names does not exist."""


class RequestConflict(ClientError):
    """A concurrent change was first, or the thing exists already. Nothing was changed."""


class RateLimited(ClientError):
    """A limit of the server, a tenant or an inbox is reached. Nothing was changed."""


class ServerFailed(ClientError):
    """The server could not carry the request out; a write may or may not have happened."""


class MessageFailed(ClientError):
    """A message was handled and failed; state and files are as before it. It is not repeated by itself.

    Attributes:
        error_type: the name of the exception's class in the agent, or of podium's own error.
        parked: whether the message is kept, out of the queue, until `AsyncPodium.retry` or `AsyncPodium.drop`.
    """

    default_code = "turn_failed"

    def __init__(
        self, message: str, *, error_type: str = "", parked: bool = False, **fields: Unpack[ErrorFields]
    ) -> None:
        super().__init__(message, **fields)
        self.error_type = error_type
        self.parked = parked


class MessageCancelled(MessageFailed):
    """A message was cancelled, by its sender or for another one; nothing of its turn was kept."""

    default_code = "cancelled"


class RunPaused(ClientError):
    """The turn of a message is paused: there is no answer until it goes on. Answer it with `AsyncPodium.resume`.

    Attributes:
        run: what it waits for, as HTTP tells it: ``run_id``, ``call_id``, ``reason``, ``schema`` and others; ``None``
            if the run was followed from a later position only.
    """

    default_code = "run_paused"

    def __init__(self, message: str, *, run: dict[str, Any] | None = None, **fields: Unpack[ErrorFields]) -> None:
        super().__init__(message, **fields)
        self.run = run


class AnswerTimeout(ClientError):
    """A message was not answered in time. It stays in the inbox, or goes on being handled."""

    default_code = "answer_timeout"


class Unreachable(ClientError):
    """No connection to the server, also after attempts to connect again. Accepted messages are kept."""

    default_code = "unreachable"


class BadAnswer(ClientError):
    """The server's answer is not one of podium's protocol."""

    default_code = "bad_answer"


_KINDS: Final[Mapping[str, str]] = {"unknown_turn": "UnknownMoment", "unknown_event": "EventNotFound"}
"""The codes that are not made from the names of their classes."""
_BY_TYPE: Final[Mapping[str, type[ClientError]]] = {
    "invalid_request_error": InvalidRequest,
    "authentication_error": AuthenticationFailed,
    "permission_error": PermissionDenied,
    "not_found_error": ResourceNotFound,
    "conflict_error": RequestConflict,
    "rate_limit_error": RateLimited,
    "api_error": ServerFailed,
}
_BY_CODE: Final[Mapping[str, type[MessageFailed]]] = {
    "turn_failed": MessageFailed,
    "message_parked": MessageFailed,
    "cancelled": MessageCancelled,
}


def error_of_wire(status: int, error: Mapping[str, Any], *, retry_after_s: float | None = None) -> ClientError:
    """Return the exception for the ``error`` object of an answer, ``{message, type, code, param}``.

    Args:
        status: the answer's HTTP status.
        error: the object; with ``message_id`` if the error is about a message.
        retry_after_s: the answer's ``Retry-After``, seconds.
    """
    text, code = str(error.get("message") or f"the server answered {status}"), str(error.get("code") or "")
    fields = ErrorFields(
        status=status, param=error.get("param"), message_id=error.get("message_id"), retry_after_s=retry_after_s
    )
    if code:
        fields["code"] = code
    of_message = _BY_CODE.get(code)
    if of_message is not None:
        return of_message(
            text, error_type=str(error.get("error_type") or ""), parked=code == "message_parked", **fields
        )
    return _BY_TYPE.get(str(error.get("type")), _by_status(status))(text, **fields)


def not_a(path: str, kind: str) -> InvalidRequest:
    """Return the error for a path that names something else than a file or a directory."""
    return InvalidRequest(f"{path!r} is not a {kind}", code=f"not_a_{kind}", param="path")


def no_content(found: Mapping[str, Any]) -> InvalidRequest:
    """Return the error for a path that was to be read, and names a directory or a symlink.

    Args:
        found: the JSON object that describes it.
    """
    what = f"a symbolic link to {found['target']}" if found["type"] == "symlink" else f"a {found['type']}"
    return InvalidRequest(f"{found['path']} is {what}; only files have content", code="not_a_file", param="path")


def _by_status(status: int) -> type[ClientError]:
    """Return the class of an answer that names no type, such as one of a proxy."""
    if status >= 500:
        return ServerFailed
    classes = {401: AuthenticationFailed, 403: PermissionDenied, 404: ResourceNotFound, 409: RequestConflict}
    return RateLimited if status == 429 else classes.get(status, InvalidRequest)
