"""The one table of errors: an exception's class to its HTTP status, its type and its code.

Statuses have one type each; codes are stable and tell errors of one status apart. The gateway answers by it, and the
client raises by it what a home on this machine refuses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from chronicle import errors as chronicle
from coordinator.access import quotas
from coordinator.access.caller import (
    ExpiredKey,
    KeyOfAnotherHome,
    MissingKey,
    NarrowedKey,
    NotAuthenticated,
    NotPermitted,
    RevokedKey,
    TooManyRequests,
    UnknownKey,
)
from coordinator.operations import errors as operations
from coordinator.service.client import ServiceError, ServiceRefused
from coordinator.streams.position import InvalidPosition
from podium import errors as podium
from podium.models.errors import ModelError
from podium.state import errors as state

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ERRORS", "TYPES", "Problem", "more_of", "problem_of", "type_of"]

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
_TYPE_OF_REQUESTS: Final = "invalid_request_error"
_TYPE_OF_SERVERS: Final = "api_error"
TYPES: Final = tuple(sorted({*_TYPES.values(), _TYPE_OF_REQUESTS, _TYPE_OF_SERVERS}))
"""All types."""


def type_of(status: int) -> str:
    """Return the type of the errors with a status."""
    return _TYPES.get(status, _TYPE_OF_SERVERS if status >= 500 else _TYPE_OF_REQUESTS)


@dataclass(frozen=True, slots=True)
class Problem:
    """How an error is answered."""

    status: int
    code: str
    retry_after_s: int | None = None
    """Seconds after which a repetition may succeed."""


ERRORS: Final[Mapping[type[Exception], Problem]] = {
    # podium
    podium.InvalidAddress: Problem(400, "invalid_address"),
    podium.UnknownAgentType: Problem(404, "unknown_agent_type"),
    podium.UnknownAgent: Problem(404, "unknown_agent"),
    podium.InvalidMessage: Problem(422, "invalid_message"),
    podium.UnknownHandler: Problem(422, "unknown_handler"),
    podium.ReadOnly: Problem(502, "read_only"),
    podium.ReadFailed: Problem(502, "read_failed"),
    podium.UnknownMoment: Problem(404, "unknown_turn"),
    podium.UnknownArtifact: Problem(404, "unknown_artifact"),
    podium.EventNotFound: Problem(404, "unknown_event"),
    podium.AgentExists: Problem(409, "agent_exists"),
    podium.AgentAwake: Problem(409, "agent_awake", 1),
    podium.AgentBusy: Problem(409, "agent_busy", 1),
    podium.AgentInUse: Problem(409, "agent_in_use"),
    podium.RunNotFound: Problem(404, "unknown_run"),
    podium.RunNotPaused: Problem(409, "run_not_paused"),
    podium.DecisionExpired: Problem(409, "decision_expired"),
    podium.DecisionInvalid: Problem(400, "invalid_decision"),
    podium.AgentAsleep: Problem(503, "unavailable", 1),
    podium.HostDied: Problem(503, "host_died", 1),
    podium.Evicted: Problem(503, "unavailable", 1),
    podium.TurnsLost: Problem(503, "unavailable", 1),
    podium.AgentLoadError: Problem(502, "agent_load_error"),
    podium.HomeError: Problem(503, "home_error"),
    podium.PodiumError: Problem(500, "error"),
    # what operations add
    operations.InvalidCursor: Problem(400, "invalid_cursor"),
    podium.UnknownFile: Problem(404, "unknown_file"),
    podium.NotAFile: Problem(409, "not_a_file"),
    operations.UnknownSession: Problem(404, "unknown_session"),
    operations.UnknownBranch: Problem(404, "unknown_branch"),
    operations.UnknownSessionEvent: Problem(404, "unknown_event"),
    operations.UnknownSessionArtifact: Problem(404, "unknown_artifact"),
    operations.UnknownBundle: Problem(404, "unknown_bundle"),
    operations.BundleTooLarge: Problem(413, "bundle_too_large"),
    operations.UnknownEventType: Problem(400, "unknown_event_type"),
    operations.SessionReadOnly: Problem(403, "session_read_only"),
    operations.UploadTooLarge: Problem(413, "body_too_large"),
    operations.MessagePaused: Problem(409, "run_paused"),
    operations.MessageFailed: Problem(502, "turn_failed"),
    operations.MessageParked: Problem(502, "message_parked"),
    operations.MessageCancelled: Problem(409, "cancelled"),
    # access
    NotAuthenticated: Problem(401, "not_authenticated"),
    MissingKey: Problem(401, "missing_key"),
    UnknownKey: Problem(401, "unknown_key"),
    ExpiredKey: Problem(401, "expired_key"),
    RevokedKey: Problem(401, "revoked_key"),
    NarrowedKey: Problem(401, "narrowed_key"),
    KeyOfAnotherHome: Problem(401, "key_of_another_home"),
    NotPermitted: Problem(403, "not_permitted"),
    quotas.QuotaExceeded: Problem(403, "quota_exceeded"),
    quotas.MessageQuotaExceeded: Problem(429, "quota_exceeded", 10),
    TooManyRequests: Problem(429, "too_many_requests", 1),
    InvalidPosition: Problem(400, "invalid_last_event_id"),
    # the service
    ServiceError: Problem(503, "service_unavailable", 1),
    ServiceRefused: Problem(500, "refused"),  # of a class that is not named here: a bug of the service
    # chronicle
    chronicle.NotFound: Problem(404, "not_found"),
    chronicle.InvalidInput: Problem(400, "invalid_input"),
    chronicle.Conflict: Problem(409, "conflict", 1),
    chronicle.BranchVersionConflict: Problem(409, "branch_version_conflict"),
    chronicle.IdempotencyConflict: Problem(409, "idempotency_conflict"),
    chronicle.StaleEpoch: Problem(409, "conflict", 1),
    chronicle.InboxFull: Problem(429, "inbox_full", 1),
    chronicle.OverQuota: Problem(409, "over_quota"),
    chronicle.Corrupt: Problem(500, "corrupt"),
    chronicle.UnsupportedFormat: Problem(500, "unsupported_format"),
    chronicle.Unavailable: Problem(503, "unavailable", 1),
    chronicle.StorageRefused: Problem(507, "storage_refused", 1),
    chronicle.ChronicleError: Problem(500, "error"),
    # models and responses; their kinds are below
    ModelError: Problem(502, "model_error"),
    operations.ResponseFailed: Problem(502, "model_error"),
    operations.EmptyContext: Problem(400, "missing_input"),
    operations.UnknownResponse: Problem(404, "unknown_response"),
    # the agent's state
    state.StateError: Problem(500, "state_error"),
}
"""By class; a subclass that is not listed has the problem of its nearest base."""


_OF_MODELS: Final[Mapping[str, Problem]] = {
    "rate_limited": Problem(429, "rate_limited", 1),
    "overloaded": Problem(503, "overloaded", 1),
    "unavailable": Problem(503, "model_unavailable", 1),
    "timeout": Problem(504, "model_timeout"),
    "protocol": Problem(502, "model_protocol"),
    "bad_request": Problem(400, "model_bad_request"),
    "auth": Problem(502, "model_auth"),
    "context_overflow": Problem(400, "context_overflow"),
    "deadline_exceeded": Problem(504, "deadline_exceeded"),
    "budget_exceeded": Problem(403, "budget_exceeded"),
    "unknown_profile": Problem(404, "unknown_profile"),
    "cancelled": Problem(409, "cancelled"),
    "shutting_down": Problem(503, "unavailable", 1),
    "not_stored": Problem(507, "not_stored"),
    "internal_error": Problem(500, "internal_error"),
}
"""By kind of a model's error, and by code of a response that failed."""


def problem_of(error: BaseException) -> Problem | None:
    """Return what a client is told of an error; ``None`` for one that is a bug.

    An error that the service reports has the problem of the class that the service names.
    """
    if isinstance(error, ServiceRefused) and (named := _named(error.kind)) is not None:
        return replace(named, retry_after_s=error.retry_after_s) if error.retry_after_s else named
    if isinstance(error, ModelError | operations.ResponseFailed):
        kind = error.kind if isinstance(error, ModelError) else error.code
        told = _OF_MODELS.get(kind, ERRORS[ModelError])
        return replace(told, retry_after_s=math.ceil(error.retry_after_s)) if error.retry_after_s else told
    found = _of_class(type(error))
    if found is not None and isinstance(error, TooManyRequests | quotas.MessageQuotaExceeded):
        return replace(found, retry_after_s=error.retry_after_s)
    return found


def more_of(error: BaseException) -> dict[str, Any]:
    """Return what a client is told of an error beside its message, type, code and param."""
    if isinstance(error, operations.MessageNotAnswered):
        return {"message_id": error.message_id, "error_type": error.error_type}
    if isinstance(error, operations.ResponseFailed):
        return {"response_id": error.response_id}
    if isinstance(error, chronicle.BranchVersionConflict):
        return {"version": error.version, "head_event_id": error.head_event_id}
    return {}


def _named(kind: str) -> Problem | None:
    if kind == TimeoutError.__name__:
        return Problem(504, "timeout")
    for module in (podium, chronicle, operations, quotas, state):
        if kind in module.__all__:
            return _of_class(getattr(module, kind))
    return None


def _of_class(kind: type[BaseException]) -> Problem | None:
    return next((ERRORS[base] for base in kind.__mro__ if base in ERRORS), None)
