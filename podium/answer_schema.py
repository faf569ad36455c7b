"""The JSON Schema of an answer: made of what a program asks with, and checked at whoever answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from podium.errors import DecisionInvalid

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

    from chronicle.canonical import Json

__all__ = ["NO_DEFAULT", "check_answer", "check_schema"]

NO_DEFAULT: Final[Any] = object()
"""In place of an answer that is used if nobody answers, where none was given."""


def check_schema(schema: Json) -> None:
    """Check that a schema can be used: it is one of draft 2020-12, and refers to nothing outside of itself.

    Raises:
        DecisionInvalid: it cannot.
    """
    _validator(schema)


def check_answer(schema: Json, answer: Json) -> None:
    """Check that an answer fits a schema.

    Raises:
        DecisionInvalid: it does not; the message has the place.
    """
    error = next(_validator(schema).iter_errors(answer), None)
    if error is not None:
        raise DecisionInvalid(f"the answer does not fit its schema: {_text(error)}")


def _validator(schema: Json) -> Validator:
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError  # noqa: PLC0415  for pauses only

    try:
        # Patterns are matched in linear time: anybody who may decide sends the text.
        return Draft202012Validator(
            cast("Any", schema), pattern_options=RegexOptions(), offline=True, validate_formats=True
        )
    except (ValidationError, ValueError) as error:
        text = _text(error) if isinstance(error, ValidationError) else str(error)
        raise DecisionInvalid(f"the schema of a decision cannot be used: {text}") from error


def _text(error: ValidationError) -> str:
    """Return an error of the library with its place, a JSON pointer."""
    place = "".join(f"/{part}" for part in error.instance_path)
    return f"at {place}: {error.message[:500]}" if place else error.message[:500]
