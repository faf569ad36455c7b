"""The errors of models: that of a call, whose kind says what may be done about it, and that of a missing library."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from podium.errors import PodiumError

__all__ = ["ModelError", "ModelErrorKind", "ProviderNotInstalled"]

ModelErrorKind: TypeAlias = Literal[
    "rate_limited",
    "overloaded",
    "unavailable",
    "timeout",
    "protocol",
    "bad_request",
    "auth",
    "context_overflow",
    "deadline_exceeded",
    "budget_exceeded",
    "unknown_profile",
]
"""Why a call failed:

* ``rate_limited``: the provider's limit of requests or tokens, with its wait if it named one.
* ``overloaded``: the provider has no capacity, or the model gateway's own queue is full.
* ``unavailable``: no connection, a connection that was cut, or a failure inside the provider.
* ``timeout``: the provider was silent for longer than the provider object permits.
* ``protocol``: the answer is not what the protocol says: HTML, half a frame, an end without a finish.
* ``bad_request``: the provider refuses the request; the same request is refused again.
* ``auth``: no key, a wrong key, or one without the right to the model.
* ``context_overflow``: the messages are longer than the model's context.
* ``deadline_exceeded``: the caller's deadline passed.
* ``budget_exceeded``: the tenant's budget is used up.
* ``unknown_profile``: no profile of that name.
"""

_RETRYABLE: Final = frozenset({"rate_limited", "overloaded", "unavailable", "timeout", "protocol"})
_ELSEWHERE: Final = _RETRYABLE | {"auth"}


class ModelError(PodiumError):
    """A model call failed.

    Attributes:
        kind: why; see `ModelErrorKind`.
        provider: the name of the provider, such as ``openai``; ``None`` if the call reached none.
        status: the HTTP status of the provider's answer; ``None`` if there was none, or the failure came in its stream.
        retry_after_s: seconds that the provider asks to wait before another request; ``None`` if it named none.
    """

    def __init__(
        self,
        message: str,
        kind: ModelErrorKind,
        *,
        provider: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.provider = provider
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def retryable(self) -> bool:
        """True if the same request to the same model may succeed later."""
        return self.kind in _RETRYABLE

    @property
    def may_succeed_elsewhere(self) -> bool:
        """True if another model or provider may answer the same request: a retryable failure, or a refused key."""
        return self.kind in _ELSEWHERE


class ProviderNotInstalled(PodiumError):
    """The library of a provider is not installed; the text says how to install it."""
