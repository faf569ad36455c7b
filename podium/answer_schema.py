"""The JSON Schema of an answer: made of what a program asks with, and checked at whoever answers."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from podium.errors import DecisionInvalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jsonschema_rs import ValidationError, Validator

    from chronicle.canonical import Json

__all__ = ["NO_DEFAULT", "check_answer", "check_schema"]

NO_DEFAULT: Final[Any] = object()
"""In place of an answer that is used if nobody answers, where none was given."""

_MAX_ERRORS: Final = 20


def check_schema(schema: Json) -> None:
    """Check that a schema can be used: it is one of draft 2020-12, and refers to nothing outside of itself.

    Raises:
        DecisionInvalid: it cannot.
    """
    _validator(schema)


def check_answer(schema: Json, answer: Json) -> None:
    """Check that an answer fits a schema.

    Raises:
        DecisionInvalid: it does not; the message has the first place that is wrong.
    """
    errors = islice(_validator(schema).iter_errors(answer), _MAX_ERRORS)
    texts = tuple(_text(each) for error in errors for each in _of_one_arm(error))
    if texts:
        raise DecisionInvalid(f"the answer does not fit its schema: {texts[0]}", texts)


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


def _of_one_arm(error: ValidationError) -> Sequence[ValidationError]:
    """Return what is wrong within the one arm of a union that an answer is meant for, if its constants tell that.

    The arms of a discriminated union differ in a constant: all but one refuse the answer by it.
    """
    from jsonschema_rs import ValidationErrorKind as Kind  # noqa: PLC0415

    if not isinstance(error.kind, Kind.OneOfNotValid | Kind.AnyOf):
        return [error]
    arms = [arm for arm in error.kind.context if not any(_is_of_another(each, error) for each in arm)]
    return [each for inner in arms[0] for each in _of_one_arm(inner)] if len(arms) == 1 else [error]


def _is_of_another(error: ValidationError, of_union: ValidationError) -> bool:
    """Whether an error in an arm of a union says that the answer is meant for another arm."""
    from jsonschema_rs import ValidationErrorKind as Kind  # noqa: PLC0415

    is_whole = len(error.instance_path) == len(of_union.instance_path)
    return isinstance(error.kind, Kind.Constant | Kind.Enum) or (is_whole and isinstance(error.kind, Kind.Type))


def _text(error: ValidationError) -> str:
    """Return an error of the library with its place, a JSON pointer."""
    place = "".join(f"/{part}" for part in error.instance_path)
    return f"at {place}: {error.message[:500]}" if place else error.message[:500]
