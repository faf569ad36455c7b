"""Types of the results of steps: pydantic makes JSON of a result for the record, and the result of the record.

Both ways are taken in each attempt, the first one included, so that a program gets the same value from all of them.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, fields, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput, WrongType
from podium.errors import Permanent, ProgramChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.canonical import Json

__all__ = ["StepType", "type_of"]


@dataclass(frozen=True, slots=True)
class StepType:
    """The type of the result of a step."""

    adapter: TypeAdapter[Any]

    def to_json(self, key: str, value: object) -> Json:
        """Return a result as JSON.

        Raises:
            Permanent: it is not of the type, or another value is read back from its JSON.
        """
        try:
            valid = self.adapter.validate_python(value)
            plain = decode(self.adapter.dump_json(valid, by_alias=True, round_trip=True))
            found = self.adapter.validate_json(encode(plain))
        except (ValueError, InvalidInput) as error:  # pydantic's are of ValueError
            raise Permanent(f"the result of step {key!r} is not of its type: {error}") from error
        if not _same(valid, found):
            was, became = (f"{type(each).__name__} {each!r:.200}" for each in (valid, found))
            raise Permanent(
                f"the result of step {key!r} does not survive JSON: {was} is read back as {became}; annotate the exact "
                "type, and tell the members of a union apart"
            )
        return plain

    def from_json(self, key: str, plain: Json) -> Any:
        """Return the result that a record has.

        Raises:
            ProgramChanged: it is of another type.
        """
        try:
            return self.adapter.validate_json(encode(plain))
        except ValidationError as error:
            raise ProgramChanged(f"the recorded result of step {key!r} is not of its type any more: {error}") from error


def type_of(name: str, function: Callable[..., object], given: object) -> StepType | None:
    """Return the type of the result of a step; ``None`` if it is plain JSON.

    Args:
        given: the type that the program gives; ``None`` for that of the function's annotation, if it has a model in it.

    Raises:
        WrongType: pydantic knows no such type.
    """
    annotation = given if given is not None else _annotation(function)
    if given is None and not _has_model(annotation):
        return None
    try:
        return StepType(_adapter(annotation))
    except (PydanticUserError, TypeError) as error:
        raise WrongType(f"step {name!r} takes a type that pydantic knows as result=: {error}") from error


@functools.lru_cache(maxsize=256)
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _annotation(function: Any) -> Any:
    """Return the annotation of what a function returns; ``None`` without one, or if it cannot be read."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    annotation = getattr(function, "__annotations__", {}).get("return")
    if not isinstance(annotation, str):
        return annotation
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"return": annotation}), names).get("return")
    except Exception:  # noqa: BLE001  of any code; a model that is returned then asks for result=
        return None


def _same(one: object, other: object) -> bool:
    """Return whether a value was read back as it was: models of the same type, and lists may be tuples."""
    if isinstance(one, BaseModel) or is_dataclass(one):
        names = type(one).model_fields if isinstance(one, BaseModel) else [each.name for each in fields(one)]
        extra = getattr(one, "__pydantic_extra__", None) == getattr(other, "__pydantic_extra__", None)
        same = type(one) is type(other) and extra
        return same and all(_same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    return bool(one == other)


def _has_model(annotation: Any) -> bool:
    if inspect.isclass(annotation) and not get_args(annotation):
        return issubclass(annotation, BaseModel)
    return any(map(_has_model, get_args(annotation)))
