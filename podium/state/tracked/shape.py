"""The shape protocol, and the base classes of declared shapes.

A shape defines the allowed values of a member of a state, and their stored form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import BaseModel, ValidationError

from podium.state.tracked.node import Refusal

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

    from chronicle.canonical import Json
    from podium.state.pointer import Token

__all__ = ["Declared", "DeclaredItems", "Shape", "of_validation", "validated"]


class Shape(Protocol):
    """The allowed values of a member of a state, and their stored form."""

    @property
    def leaf(self) -> bool:
        """Whether none of its values is a tracked container."""
        ...

    def fits(self, value: object) -> bool:
        """Return whether a validated value is of this shape, by its Python type alone."""
        ...

    def accept(self, value: object, depth_left: int) -> object:
        """Validate a value against the declared type, and copy it in.

        Args:
            value: anything.
            depth_left: levels of containers allowed in it.

        Returns:
            the stored form: an immutable value, or a tracked container without a parent yet.

        Raises:
            Refusal: it does not validate, or JSON cannot represent it.
        """
        ...

    def copy_in(self, value: object, depth_left: int) -> object:
        """Copy in a value that pydantic has validated; otherwise like `accept`."""
        ...

    def encode(self, value: object) -> Json:
        """Return the JSON of a stored value; it shares nothing mutable with the value."""
        ...


def of_validation(error: ValidationError, value: object) -> Refusal:
    """Return the refusal for a pydantic error, with the location of its first problem as the tail.

    pydantic's locations also name arms of unions and the like; only steps into the value are used.

    Args:
        error: pydantic's error.
        value: the value that did not validate.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    tokens: list[Token] = []
    here: Any = value
    for place, token in enumerate(first["loc"], 1):
        if isinstance(here, BaseModel):
            here = here.__dict__
        is_step = (
            token in here if isinstance(here, dict) else isinstance(here, list | tuple) and token in range(len(here))
        )
        if is_step:
            tokens.append(token)
            here = here[token]
        elif first["type"] == "missing" and place == len(first["loc"]):
            tokens.append(token)
    return Refusal(str(first["msg"]), *reversed(tokens))


def validated(validator: SchemaValidator, value: object) -> Any:
    """Return the value that pydantic produces from a value.

    Raises:
        Refusal: it does not validate.
    """
    try:
        return validator.validate_python(value)
    except ValidationError as error:
        raise of_validation(error, value) from error


class Declared:
    """A shape that validates a value as a whole before it copies it in.

    Args:
        validator: pydantic's for the declared type.
    """

    __slots__ = ("validator",)

    def __init__(self, validator: SchemaValidator) -> None:
        self.validator = validator

    def accept(self, value: object, depth_left: int) -> object:
        """Validate a value, and copy it in; see `Shape`."""
        return self.copy_in(validated(self.validator, value), depth_left)

    if TYPE_CHECKING:

        def copy_in(self, value: object, depth_left: int) -> object: ...


class DeclaredItems(Declared):
    """A declared container of items of one shape.

    Attributes:
        leaf: ``False``, whatever its items: the container itself is tracked.

    Args:
        item: the shape of its items.
        validator: pydantic's for the declared type.
        bounds: pydantic's for constraints on the container as a whole; ``None`` without any.
    """

    __slots__ = ("bounds", "item")
    leaf: Final = False

    def __init__(self, item: Shape, validator: SchemaValidator, bounds: SchemaValidator | None = None) -> None:
        super().__init__(validator)
        self.item = item
        self.bounds = bounds
