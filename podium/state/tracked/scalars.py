"""Shapes of scalar values.

Scalars are not tracked: such a value changes only by being replaced, so it must be immutable.
"""

# Not every shape uses all arguments of the protocol.
# ruff: noqa: ARG002
from __future__ import annotations

import math
from datetime import datetime, time, timedelta
from typing import Final

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, SchemaSerializer, SchemaValidator

from chronicle.canonical import MAX_DIGITS, Json, encode
from chronicle.errors import InvalidInput
from podium.state.tracked.node import Refusal
from podium.state.tracked.shape import of_validation, validated

__all__ = ["Coded", "Scalar", "json_scalar"]

_NO_OFFSET: Final = timedelta(0)
_MINUTE: Final = timedelta(minutes=1)
_TOO_LARGE: Final = 10**MAX_DIGITS


def json_scalar(value: object) -> Json:
    """Return the stored form of an undeclared scalar.

    Subclasses of JSON's types (``class Color(str, Enum)``) become the plain value, as they would by a round trip.

    Raises:
        Refusal: JSON cannot represent it, or it would not survive the round trip.
    """
    if type(value) is str and value.isascii():
        return value
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return _whole(value)
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise Refusal(
            "bytes have no JSON form of their own; declare the field as pydantic.Base64Bytes, or put text there"
        )
    name = type(value).__name__
    raise Refusal(
        f"a {name} would not come back from JSON as a {name}; declare its type in the state class, or put plain values"
    )


def _text(value: str) -> str:
    if type(value) is not str:
        value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Refusal("text with a lone surrogate is not Unicode, so JSON cannot hold it") from None
    return value


def _whole(value: int) -> int:
    if not -_TOO_LARGE < value < _TOO_LARGE:
        raise Refusal(f"an integer of more than {MAX_DIGITS:,} digits could not be read back; put it as text")
    return value if type(value) is int else int(value)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise Refusal(f"JSON cannot hold {float(value)}; use None, or declare the field as text")
    return float(value) + 0.0  # -0.0 is 0 in JSON, and would come back as 0.0


class Scalar:
    """str, int, float, bool or None, declared without constraints: stored as it is.

    Args:
        kind: the Python type.
        validator: pydantic's for the declared type.
    """

    __slots__ = ("_kind", "validator")
    leaf: Final = True

    def __init__(self, kind: type, validator: SchemaValidator) -> None:
        self._kind = kind
        self.validator = validator

    def fits(self, value: object) -> bool:
        return type(value) is self._kind

    def accept(self, value: object, depth_left: int) -> object:
        if type(value) is not self._kind:
            value = validated(self.validator, value)
        return json_scalar(value)

    def copy_in(self, value: object, depth_left: int) -> object:
        if type(value) is not self._kind:
            value = validated(self.validator, value)
        return json_scalar(value)

    def encode(self, value: object) -> Json:
        return value  # type: ignore[return-value]  # copy_in() accepts JSON's own types only


class Coded:
    """A declared type of immutable values that pydantic writes to JSON and reads back: dates, UUIDs, enums.

    Args:
        validator: pydantic's for the declared type.
        serializer: pydantic's for the declared type.
        trusted: all values are known to survive the round trip; otherwise it is checked for each value.
        alone: a value validates without the other fields of its model; otherwise its round trip is not checked here.
    """

    __slots__ = ("_serializer", "_trusted", "alone", "validator")
    leaf: Final = True

    def __init__(
        self, validator: SchemaValidator, serializer: SchemaSerializer, *, trusted: bool, alone: bool = True
    ) -> None:
        self.validator = validator
        self._serializer = serializer
        self._trusted = trusted
        self.alone = alone

    def fits(self, value: object) -> bool:
        return self.validator.isinstance_python(value, strict=True)

    def accept(self, value: object, depth_left: int) -> object:
        return self._keep(validated(self.validator, value))

    def copy_in(self, value: object, depth_left: int) -> object:
        return self.accept(value, depth_left) if self._trusted and self.alone else self._keep(value)

    def encode(self, value: object) -> Json:
        return self._serializer.to_python(value, mode="json", by_alias=False, warnings=False)  # type: ignore[no-any-return]

    def _keep(self, value: object) -> object:
        try:
            hash(value)
        except TypeError:
            raise Refusal(
                f"changes inside a value of type {type(value).__name__} could not be seen; declare a list, dict, set "
                "or pydantic model, without a serializer of its own, or something immutable"
            ) from None
        try:
            written = encode(self.encode(value))
        except (InvalidInput, PydanticSerializationError) as error:
            raise Refusal(f"JSON cannot hold it: {error}") from error
        if self.alone and not self._trusted:
            self._check_round_trip(value, written)
        if isinstance(value, datetime | time) and (value.utcoffset() or _NO_OFFSET) % _MINUTE:
            raise Refusal(
                f"its UTC offset of {value.utcoffset()} has seconds, which JSON's form of it leaves out; use UTC"
            )
        return _finite(value) if type(value) is float else value

    def _check_round_trip(self, value: object, written: bytes) -> None:
        hint = "let its validator accept what its serializer writes"
        try:
            again = self.validator.validate_json(written, by_alias=False, by_name=True)
        except ValidationError as error:
            raise Refusal(
                f"it would not load again from its JSON: {of_validation(error, None).reason}; {hint}"
            ) from error
        if type(again) is not type(value) or again != value:
            raise Refusal(f"it would come back from its JSON as {again!r}; {hint}")
