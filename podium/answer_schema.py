"""The JSON Schema of an answer: made of what a program asks with, and checked at whoever answers."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from podium.errors import DecisionInvalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jsonschema_rs import ValidationError, Validator

    from chronicle.canonical import Json, JsonObject

__all__ = ["NO_DEFAULT", "check_answer", "check_schema"]

NO_DEFAULT: Final[Any] = object()
"""In place of an answer that is used if nobody answers, where none was given."""

_MAX_ERRORS: Final = 20
_MAX_PARTS: Final = 10_000
"""Parts of a schema against which one value is checked, counted each time that a reference leads to it."""
_MAX_NESTED: Final = 100
"""Parts in one another for one value: also the end of references that go round."""
_OF_LISTS: Final = ("allOf", "anyOf", "oneOf")
_OF_ONE: Final = ("not", "if", "then", "else")


def check_schema(schema: Json) -> None:
    """Check that a schema can be used: it is one of draft 2020-12, and refers to nothing outside of itself.

    References are pointers from its root, ``#/$defs/name``, and one value is checked against 10,000 parts at most.

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

    _check_size(schema)
    try:
        # Patterns are matched in linear time: anybody who may decide sends the text.
        return Draft202012Validator(
            cast("Any", schema), pattern_options=RegexOptions(), offline=True, validate_formats=True
        )
    except (ValidationError, ValueError) as error:
        text = _text(error) if isinstance(error, ValidationError) else str(error)
        raise DecisionInvalid(f"the schema of a decision cannot be used: {text}") from error


def _check_size(schema: Json) -> None:
    """Refuse a schema whose references multiply: 60 small parts could keep the thread for years."""
    counts: dict[int, int] = {}
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$dynamicRef"), str) or (part is not schema and isinstance(part.get("$id"), str)):
                raise DecisionInvalid("the schema of a decision refers by pointers from its root only")
            _count(schema, part, counts, 0)
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)


def _count(root: Json, part: Json, counts: dict[int, int], depth: int) -> int:
    """Return against how many parts a value is checked that is checked against this one."""
    if not isinstance(part, dict):
        return 1
    if id(part) in counts:
        return counts[id(part)]
    if depth > _MAX_NESTED:
        raise DecisionInvalid(f"the schema of a decision goes round, or more than {_MAX_NESTED} parts deep")
    within: list[Json] = [part[key] for key in _OF_ONE if key in part]
    within += [each for key in _OF_LISTS if isinstance(arms := part.get(key), list) for each in arms]
    if isinstance(dependent := part.get("dependentSchemas"), dict):
        within += dependent.values()
    if isinstance(reference := part.get("$ref"), str):
        within.append(_referred(root, reference))
    count = 1 + sum(_count(root, each, counts, depth + 1) for each in within)
    if "unevaluatedItems" in part or "unevaluatedProperties" in part:  # these look at all the others again
        count *= 2
    if count > _MAX_PARTS:
        raise DecisionInvalid(f"the schema of a decision checks one value against more than {_MAX_PARTS:,} parts")
    counts[id(part)] = count
    return count


def _referred(root: Json, reference: str) -> Json:
    if reference != "#" and not reference.startswith("#/"):
        raise DecisionInvalid(f"the schema of a decision refers by pointers from its root, not to {reference[:200]}")
    found = root
    for name in unquote(reference[1:]).split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(key)] if isinstance(found, list) else cast("JsonObject", found)[key]
        except (LookupError, TypeError, ValueError):
            raise DecisionInvalid(f"the schema of a decision refers to {reference[:200]}, which is not there") from None
    return found


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
