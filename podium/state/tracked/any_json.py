"""The shape of undeclared values: JSON's own scalars, and tracked containers of them."""

# Not every shape uses all arguments of the protocol.
# ruff: noqa: ARG002
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic_core import SchemaValidator, core_schema

from podium.state.tracked.dicts import DictShape, TextKeys
from podium.state.tracked.lists import ListShape
from podium.state.tracked.scalars import json_scalar

if TYPE_CHECKING:
    from chronicle.canonical import Json

__all__ = ["ANYTHING", "AnyShape"]

_FIXED: Final[frozenset[type]] = frozenset({bool, type(None)})


class AnyShape:
    """An undeclared or ``Any``-typed value: lists and dicts with text keys are tracked, tuples become lists."""

    __slots__ = ()
    leaf: Final = False

    def fits(self, value: object) -> bool:
        return True

    def accept(self, value: object, depth_left: int) -> object:
        return self.copy_in(value, depth_left)

    def copy_in(self, value: object, depth_left: int) -> object:
        if type(value) in _FIXED or (type(value) is str and value.isascii()):
            return value
        if isinstance(value, dict):
            return _ANY_DICT.copy_in(value, depth_left)
        if isinstance(value, list | tuple):
            return _ANY_LIST.copy_in(value, depth_left)
        return json_scalar(value)

    def encode(self, value: object) -> Json:
        if isinstance(value, dict):
            return {key: self.encode(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.encode(item) for item in value]
        return value  # type: ignore[return-value]  # copy_in() accepts JSON's own types only


ANYTHING: Final = AnyShape()
_validator: Final = SchemaValidator(core_schema.any_schema())
_ANY_LIST: Final = ListShape(ANYTHING, _validator)
_ANY_DICT: Final = DictShape(TextKeys(), ANYTHING, _validator)
