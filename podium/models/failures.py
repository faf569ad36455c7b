"""Meaning of a provider's failure: from statuses, codes and texts of errors to the kinds of `ModelError`. Pure.

The vendors' codes are documented; servers that speak the same formats send others, or a bare status, or a page of a
proxy. So the code decides where it is known, then the status; the overflow of a context is found by its text, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from podium.models.errors import ModelError, ModelErrorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ErrorBody", "kind_of_failure", "model_error", "retry_after_s", "short_text"]

_KIND_OF_CODE: Final[dict[str, ModelErrorKind]] = {
    # Anthropic's types
    "overloaded_error": "overloaded",
    "rate_limit_error": "rate_limited",
    "api_error": "unavailable",
    "timeout_error": "timeout",
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "auth",
    "request_too_large": "context_overflow",
    "invalid_request_error": "bad_request",
    "not_found_error": "bad_request",
    # OpenAI's codes
    "rate_limit_exceeded": "rate_limited",
    "insufficient_quota": "auth",
    "invalid_api_key": "auth",
    "server_error": "unavailable",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "context_length_exceeded": "context_overflow",
    "string_above_max_length": "context_overflow",
    "invalid_prompt": "bad_request",
    "model_not_found": "bad_request",
    # llama.cpp's type
    "exceed_context_size_error": "context_overflow",
}
_KIND_OF_STATUS: Final[dict[int, ModelErrorKind]] = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "timeout",
    409: "unavailable",
    413: "context_overflow",
    425: "unavailable",
    429: "rate_limited",
    503: "overloaded",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}
_OVERFLOW: Final = re.compile(
    r"context.?(length|window|size|limit)|maximum context|(prompt|input) is too long|too many (input )?tokens",
    re.IGNORECASE,
)
_CREDIT: Final = re.compile(r"credit balance|insufficient (credit|balance|funds)", re.IGNORECASE)
_MAX_WAIT_S: Final = 24 * 3600.0
_TAG: Final = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """Report of a provider about a failure."""

    message: str
    codes: tuple[str, ...] = ()
    """Its codes and types, the most specific first."""

    @classmethod
    def read(cls, body: object) -> ErrorBody:
        """Read the body of an error: text, or the JSON of any of the formats, with or without ``error`` around it."""
        if isinstance(body, dict):
            inner = body.get("error", body)
            if isinstance(inner, dict):
                details = inner.get("details")
                specific = details.get("error_code") if isinstance(details, dict) else None
                codes = (specific, inner.get("code"), inner.get("type"))
                message = inner.get("message") or inner.get("detail") or ""
                return cls(short_text(str(message)), tuple(str(code) for code in codes if code is not None))
            body = inner
        return cls("" if body is None else short_text(str(body)))


def kind_of_failure(status: int | None, body: ErrorBody) -> ModelErrorKind:
    """Return the kind of a failure.

    Args:
        status: the HTTP status; ``None``, or a status of success, for an error within a stream.
    """
    if status in {None, 200, 400, 413, 422} and _OVERFLOW.search(body.message):
        return "context_overflow"
    if _CREDIT.search(body.message):
        return "auth"
    for code in body.codes:
        if code in _KIND_OF_CODE:
            # OpenAI gives every refusal this type; then the status says more.
            if code == "invalid_request_error" and status in _KIND_OF_STATUS:
                break
            return _KIND_OF_CODE[code]
        if code.isdecimal() and 400 <= int(code) <= 599:
            status = int(code)  # of a server in between, which begins its stream before it knows
    if status is None or status < 400:
        return "unavailable"
    return _KIND_OF_STATUS.get(status) or ("unavailable" if status >= 500 else "bad_request")


def model_error(
    provider: str, status: int | None, body: object, headers: Mapping[str, str] | None = None, *, now_ms: int
) -> ModelError:
    """Return the error for a refused request, or for an error within a stream.

    Args:
        body: the JSON value of the error, or its text.
        headers: of the answer, with names that are not case-sensitive.
        now_ms: the wall-clock time, for waits that end at a date.
    """
    read = ErrorBody.read(body)
    kind = kind_of_failure(status, read)
    said = f"status {status}" if status is not None and status >= 400 else "an error in its stream"
    hint = ": is its base URL right?" if status == 404 and not read.codes else ""
    message = f"{provider} answered with {said}{hint}" + (f": {read.message}" if read.message else "")
    return ModelError(
        message,
        kind,
        provider=provider,
        status=status,
        retry_after_s=None if headers is None else retry_after_s(headers, now_ms),
    )


def retry_after_s(headers: Mapping[str, str], now_ms: int) -> float | None:
    """Return the seconds of ``retry-after-ms`` or ``Retry-After`` (seconds or a date), at most a day; None without."""
    try:
        wait_s = float(headers["retry-after-ms"]) / 1000
    except (KeyError, ValueError):
        value = headers.get("retry-after")
        if value is None:
            return None
        try:
            wait_s = float(value)
        except ValueError:
            try:
                wait_s = parsedate_to_datetime(value).timestamp() - now_ms / 1000
            except (ValueError, OverflowError):
                return None
    return max(0.0, min(wait_s, _MAX_WAIT_S)) if wait_s == wait_s else None  # noqa: PLR0124  NaN


def short_text(text: str, most: int = 300) -> str:
    """Return a text on one line, of a number of characters at most; of a page in HTML its title, or what it shows."""
    if "<" in text and (title := _TITLE.search(text)) is not None and title[1].strip():
        text = title[1]
    elif text.lstrip().startswith("<"):
        text = _TAG.sub(" ", text)
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"
