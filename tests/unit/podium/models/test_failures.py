"""From statuses, codes and texts to the kinds of errors."""

from __future__ import annotations

import pytest

from podium.models.failures import ErrorBody, kind_of_failure, model_error, retry_after_s, short_text


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        # in the words of servers of many makes
        (
            400,
            {"error": {"code": 400, "message": "the request exceeds the available context size"}},
            "context_overflow",
        ),
        (400, {"error": {"type": "exceed_context_size_error", "message": "too big"}}, "context_overflow"),
        (400, {"detail": "This model's maximum context length is 8192 tokens."}, "context_overflow"),
        (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}, "bad_request"),
        (400, {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}, "auth"),
        (401, {"error": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "no"}}, "auth"),
        (401, {"error": {"type": "invalid_request_error", "message": "no"}}, "auth"),
        (402, None, "auth"),
        (404, {"error": "model 'x' not found"}, "bad_request"),
        (408, None, "timeout"),
        (413, {"error": {"type": "request_too_large", "message": "32 MB"}}, "context_overflow"),
        (418, None, "bad_request"),
        (429, None, "rate_limited"),
        (429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "pay"}}, "auth"),
        (500, "Internal Server Error", "unavailable"),
        (503, None, "overloaded"),
        (524, None, "timeout"),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
        # in a stream
        (None, {"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        (None, {"code": 429, "message": "upstream"}, "rate_limited"),
        (None, {"code": "502", "message": "upstream"}, "unavailable"),
        (None, {"message": "no idea"}, "unavailable"),
        (None, None, "unavailable"),
    ],
)
def test_the_kind_of_a_failure(status: int | None, body: object, kind: str) -> None:
    assert kind_of_failure(status, ErrorBody.read(body)) == kind


def test_a_rate_limit_that_speaks_of_tokens_is_no_overflow() -> None:
    message = "Rate limit reached: too many tokens per minute. The context size does not matter."
    assert kind_of_failure(429, ErrorBody(message)) == "rate_limited"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, 86_400.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_how_long_a_provider_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, 10_000) == seconds


def test_the_text_of_an_error() -> None:
    error = model_error(
        "openai", 503, {"error": {"message": "a\n  b", "code": "slow_down"}}, {"retry-after": "2"}, now_ms=0
    )
    assert str(error) == "openai answered with status 503: a b"
    assert (error.kind, error.status, error.retry_after_s, error.provider) == ("overloaded", 503, 2.0, "openai")
    assert (
        str(model_error("openai", None, {"message": "no"}, now_ms=0))
        == "openai answered with an error in its stream: no"
    )


def test_short_texts() -> None:
    assert short_text("<html><title>502\nBad Gateway</title><body>much</body></html>") == "502 Bad Gateway"
    assert short_text("<p>Hello</p><script>no()</script><b>you</b>") == "Hello you"
    assert short_text("1 < 2") == "1 < 2"
    assert short_text("x" * 400) == "x" * 300 + "…"
