"""Shapes built from other shapes: nullable, checked, recursive and union types."""

# Not every shape uses all arguments of the protocol.
# ruff: noqa: ARG002
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ValidationError

from chronicle.canonical import Json, encode
from podium.state.tracked.any_json import AnyShape
from podium.state.tracked.models import model_class
from podium.state.tracked.node import Refusal, Tracked, check_depth
from podium.state.tracked.scalars import Coded, Scalar
from podium.state.tracked.shape import Declared, Shape, of_validation

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

__all__ = ["Checked", "Deferred", "Nullable", "Undeclared", "UnionShape"]


class Nullable:
    """``T | None``.

    Args:
        inner: the shape for T.
        validator: pydantic's for the declared type.
    """

    __slots__ = ("_validator", "inner")

    def __init__(self, inner: Shape, validator: SchemaValidator) -> None:
        self.inner = inner
        self._validator = validator

    @property
    def leaf(self) -> bool:
        return self.inner.leaf

    def fits(self, value: object) -> bool:
        return value is None or self.inner.fits(value)

    def accept(self, value: object, depth_left: int) -> object:
        return None if value is None else self._no_null(self.inner.accept(value, depth_left))

    def copy_in(self, value: object, depth_left: int) -> object:
        return None if value is None else self._no_null(self.inner.copy_in(value, depth_left))

    def _no_null(self, kept: object) -> object:
        if kept is not None and isinstance(self.inner, Coded) and self.inner.encode(kept) is None:
            raise Refusal(f"{kept!r} is written as null, and would come back as None")
        return kept

    def encode(self, value: object) -> Json:
        return None if value is None else self.inner.encode(value)


class Checked(Declared):
    """A container with validators around it: they run when it is assigned, and again at commit if it changed.

    Args:
        inner: the shape inside the validators.
        validator: pydantic's for the declared type, validators included.
    """

    __slots__ = ("inner",)

    def __init__(self, inner: Shape, validator: SchemaValidator) -> None:
        super().__init__(validator)
        self.inner = inner

    @property
    def leaf(self) -> bool:
        return self.inner.leaf

    def fits(self, value: object) -> bool:
        return self.inner.fits(value)

    def copy_in(self, value: object, depth_left: int) -> object:
        return self.inner.copy_in(value, depth_left)

    def encode(self, value: object) -> Json:
        return self.inner.encode(value)


class Deferred:
    """A recursive type: its shape is set once it is compiled."""

    __slots__ = ("shape",)
    leaf: Final = False

    shape: Shape

    def fits(self, value: object) -> bool:
        return self.shape.fits(value)

    def accept(self, value: object, depth_left: int) -> object:
        return self.shape.accept(value, depth_left)

    def copy_in(self, value: object, depth_left: int) -> object:
        check_depth(depth_left)
        return self.shape.copy_in(value, depth_left)

    def encode(self, value: object) -> Json:
        return self.shape.encode(value)


class Undeclared:
    """A declared type without a JSON form.

    Args:
        reason: what is missing, and how to declare it.
    """

    __slots__ = ("_reason",)
    leaf: Final = True

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def fits(self, value: object) -> bool:
        return isinstance(value, bytes)

    def accept(self, value: object, depth_left: int) -> object:
        raise Refusal(self._reason)

    def copy_in(self, value: object, depth_left: int) -> object:
        raise Refusal(self._reason)

    def encode(self, value: object) -> Json:
        raise Refusal(self._reason)


class UnionShape(Declared):
    """``A | B``. The arm of an assigned value is determined by its Python type.

    JSON has no such type. So without a discriminator the round trip of a value is checked when it is assigned, and
    again at commit if it changed.

    Args:
        arms: the shapes for A, B, ...
        validator: pydantic's for the declared type.
        discriminated: a discriminator determines the arm of a document.
    """

    __slots__ = ("arms", "needs_round_trip")

    def __init__(self, arms: Sequence[Shape], validator: SchemaValidator, *, discriminated: bool) -> None:
        super().__init__(validator)
        self.arms = arms
        plain_scalars = all(isinstance(arm, Scalar) for arm in arms)
        self.needs_round_trip = not discriminated and not plain_scalars

    @property
    def leaf(self) -> bool:
        return all(arm.leaf for arm in self.arms)

    def fits(self, value: object) -> bool:
        return any(arm.fits(value) for arm in self.arms)

    def copy_in(self, value: object, depth_left: int) -> object:
        kept = self._arm(value).copy_in(value, depth_left)
        if self.needs_round_trip:
            self.check_round_trip(kept)
        return kept

    def encode(self, value: object) -> Json:
        return self._arm(value).encode(value)

    def check_round_trip(self, kept: object) -> None:
        """Check that a stored value survives the round trip through JSON.

        Raises:
            Refusal: it does not.
        """
        written = encode(self.encode(kept))
        try:
            again = self.validator.validate_json(written, by_alias=False, by_name=True)
        except ValidationError as error:
            raise Refusal(f"it would not load again from its JSON: {of_validation(error, None).reason}") from error
        if _kind(again) is not _kind(kept):
            raise Refusal(
                f"of the declared types its JSON fits {_kind(again).__name__} as well as {_kind(kept).__name__}, and "
                "would come back as the former; give the models a discriminator field, or declare one type"
            )
        if encode(self.encode(again)) != written:
            raise Refusal("it would come back from its JSON as another value; give the models a discriminator field")

    def _arm(self, value: object) -> Shape:
        if isinstance(value, Tracked) and value._podium.shape in self.arms:
            return value._podium.shape  # type: ignore[no-any-return]
        fitting = [arm for arm in self.arms if arm.fits(value)]
        if len(fitting) > 1:
            declared = [arm for arm in fitting if not isinstance(arm, AnyShape)]
            fitting = [arm for arm in declared if _accepts(arm, value)] or declared or fitting
        if not fitting:
            raise Refusal(f"a {type(value).__name__} is none of the declared types")
        return fitting[0]


def _accepts(arm: Shape, value: object) -> bool:
    validator = getattr(arm, "validator", None)
    return bool(validator is None or validator.isinstance_python(value, strict=True))


def _kind(value: object) -> type:
    """Return the declared type of a value, whether it is tracked or not."""
    if isinstance(value, BaseModel):
        return model_class(value)
    for kind in (list, dict, set, tuple):
        if isinstance(value, kind):
            return kind
    return type(value)
