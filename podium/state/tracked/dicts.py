"""Tracked dicts: subclasses of dict that record each change by key.

A JSON object has no order, so the order of a dict is not stored: it is loaded in the order of its keys.
"""

# Not every shape uses all arguments of the protocol.
# ruff: noqa: ARG002
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, SupportsIndex, TypeVar, cast, overload

from pydantic import ValidationError

from chronicle.canonical import Json, encode
from podium.state.guard import current_permit
from podium.state.tracked.guarded import check_access, guard_of, guarded
from podium.state.tracked.node import (
    MISSING,
    Refusal,
    Tracked,
    TrackingNode,
    check_depth,
    depth_left_in,
    link,
    note_old,
    refused,
    same_leaf,
    unlink,
)
from podium.state.tracked.plain_values import plain
from podium.state.tracked.scalars import json_scalar
from podium.state.tracked.shape import Declared, Shape, of_validation, validated

if TYPE_CHECKING:
    from typing import Self

    from pydantic_core import SchemaSerializer, SchemaValidator

    from podium.state.pointer import Token

__all__ = ["CodedKeys", "DictShape", "KeyShape", "TextKeys", "TrackedDict"]

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_dict_set: Final = dict.__setitem__


class TrackedDict(Tracked, dict[K, V]):
    """A dict in a state. Assigned values are validated and copied; reads return the dict's own members."""

    __slots__ = ("_podium",)

    def __new__(cls, *given: Any, **more: Any) -> Any:
        """Return a plain dict: ``type(items)(...)`` builds a dict outside of any state."""
        return dict(*given, **more)

    def __init__(self, *others: Any, **more: Any) -> None:  # only by an explicit second call: see __new__
        self.update(*others, **more)

    def __setitem__(self, key: K, value: V) -> None:
        # A hot path: `guarded` is inlined, which saves a call.
        node = self._podium
        guard = node.guard or guard_of(self)
        with guard.lock:
            if current_permit() is not guard.permit:
                check_access(guard, self)
            key = self._accept_key(key)
            if isinstance(value, Tracked) and self.get(key) is value:
                return  # the last step of ``items["x"] += [...]``: the container is assigned to its own key
            shape = node.shape
            try:
                kept = shape.value(key).accept(value, depth_left_in(self, value))
            except Refusal as refusal:
                refusal.tail.append(shape.keys.name(key))
                raise refused(self, refusal) from refusal.__cause__
            self._put(key, kept)

    @guarded
    def __delitem__(self, key: K) -> None:
        old = self[key]
        key = self._own(key)
        note_old(self, key, old)
        unlink(old)
        super().__delitem__(key)

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V, /) -> V: ...
    @overload
    def pop(self, key: K, default: D, /) -> V | D: ...
    @guarded
    def pop(self, key: K, default: Any = MISSING, /) -> Any:
        if default is not MISSING and key not in self:
            return default
        value = self[key]
        del self[key]
        return value

    @guarded
    def popitem(self) -> tuple[K, V]:
        if not self:
            return super().popitem()  # raises what dict raises
        key = next(reversed(self))
        return key, self.pop(key)

    @guarded
    def clear(self) -> None:
        for key in list(self):
            del self[key]

    @overload
    def setdefault(self: TrackedDict[K, D | None], key: K, default: None = None, /) -> D | None: ...
    @overload
    def setdefault(self, key: K, default: V, /) -> V: ...
    @guarded
    def setdefault(self, key: K, default: Any = None, /) -> Any:
        key = self._accept_key(key)
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, /, *others: Any, **more: Any) -> None:
        self._update(dict(*others, **more))

    @guarded
    def _update(self, given: dict[Any, Any]) -> None:
        accepted: dict[K, V] = {}
        for key, value in given.items():
            name = self._accept_key(key)
            if not isinstance(value, Tracked) or self.get(name) is not value:
                accepted[name] = self._accept(name, value)
        for key, value in accepted.items():
            self._put(key, value)

    def __ior__(self, other: Mapping[K, V] | Iterable[tuple[K, V]]) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __copy__(self) -> dict[K, V]:
        return {key: plain(value) for key, value in self.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[K, V]:
        memo[id(self)] = copied = self.__copy__()
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return (dict, (self.__copy__(),))

    def _accept_key(self, key: object) -> K:
        shape = self._podium.shape
        try:
            kept = cast("K", shape.keys.accept(key))
        except Refusal as refusal:
            raise refused(self, refusal) from refusal.__cause__
        return self._own(kept) if kept in self else kept

    def _own(self, key: K) -> K:
        """Return the dict's own key equal to ``key``: 1 and True, for example, are equal and have different names."""
        if type(key) is self._podium.shape.keys.exact:
            return key
        return next(own for own in self if own == key)

    def _accept(self, key: K, value: object) -> V:
        shape = self._podium.shape
        try:
            return cast("V", shape.value(key).accept(value, depth_left_in(self, value)))
        except Refusal as refusal:
            refusal.tail.append(shape.keys.name(key))
            raise refused(self, refusal) from refusal.__cause__

    def _put(self, key: K, kept: V) -> None:
        """Store an accepted value."""
        old = self.get(key, MISSING)
        if old is not MISSING and same_leaf(old, kept):
            return
        note_old(self, key, old)
        if isinstance(old, Tracked):
            unlink(old)
        _dict_set(self, key, kept)
        if isinstance(kept, Tracked):
            link(kept, self, key)


class KeyShape(Protocol):
    """The allowed keys of a dict, and their names in JSON: different keys have different names."""

    @property
    def exact(self) -> type | None:
        """The type whose equal keys always have equal names; ``None`` if there is none."""
        ...

    def accept(self, key: object) -> object:
        """Validate a key, and return it as it is stored.

        Raises:
            Refusal: it is not of the declared type, or undeclared and not text.
        """
        ...

    def name(self, key: object) -> str:
        """Return the key's name in a JSON object."""
        ...

    def read(self, name: str) -> object:
        """Return the key that has a name in a stored JSON object."""
        ...


class TextKeys:
    """Keys declared as text, or undeclared.

    Args:
        validator: pydantic's for the declared type; ``None`` if there is none.
    """

    __slots__ = ("_validator",)
    exact: Final = str

    def __init__(self, validator: SchemaValidator | None = None) -> None:
        self._validator = validator

    def accept(self, key: object) -> object:
        if type(key) is str and key.isascii():
            return key
        if type(key) is not str and self._validator is not None:
            try:
                key = validated(self._validator, key)
            except Refusal as refusal:
                refusal.tail.append(str(key))
                raise
        if not isinstance(key, str):
            raise Refusal(
                f"the key {key!r} is not text, and JSON has no other keys; declare the type, as in dict[int, ...]",
                str(key),
            )
        try:
            return json_scalar(key)
        except Refusal as refusal:
            refusal.tail.append(ascii(key))
            raise

    def name(self, key: object) -> str:
        assert isinstance(key, str)
        return key

    def read(self, name: str) -> object:
        return name


class CodedKeys:
    """Keys of a declared type that pydantic converts to text and back.

    Args:
        validator: pydantic's for a dict of such keys and values of any kind.
        serializer: pydantic's for the same.
        exact: the type of all stored keys, if keys of that type are known to survive the round trip and equal keys to
            have equal names; otherwise the round trip of each key is checked, so that no two keys share a name.
    """

    __slots__ = ("_serializer", "_validator", "exact")

    def __init__(self, validator: SchemaValidator, serializer: SchemaSerializer, exact: type | None) -> None:
        self._validator = validator
        self._serializer = serializer
        self.exact = exact

    def accept(self, key: object) -> object:
        try:
            (kept,) = self._validator.validate_python({key: None})
            if self.exact is not None:
                return kept
            written = encode({self.name(kept): None})
            (again,) = self._validator.validate_json(written)
        except ValidationError as error:
            raise Refusal(f"the key {key!r}: {of_validation(error, None).reason}", str(key)) from error
        except ValueError as error:
            raise Refusal(f"the key {key!r} cannot be written as text: {error}", str(key)) from error
        if type(again) is not type(kept) or again != kept:
            raise Refusal(f"the key {key!r} would come back from JSON as {again!r}", str(key))
        return kept

    def name(self, key: object) -> str:
        (name,) = self._serializer.to_python({key: None}, mode="json", warnings=False)
        assert isinstance(name, str)
        return name

    def read(self, name: str) -> object:
        (key,) = self._validator.validate_json(encode({name: None}))
        return key


class DictShape(Declared):
    """A declared dict.

    Args:
        keys: the shape of its keys.
        values: the shape of its values.
        validator: pydantic's for the declared type.
        bounds: pydantic's for constraints on the dict as a whole; ``None`` without any.
        named: shapes of values under known keys (a TypedDict); then ``values`` is for other keys, ``None`` if none are
            allowed.
    """

    __slots__ = ("_named", "_values", "bounds", "keys")
    leaf: Final = False

    def __init__(
        self,
        keys: KeyShape,
        values: Shape | None,
        validator: SchemaValidator,
        bounds: SchemaValidator | None = None,
        named: Mapping[str, Shape] | None = None,
    ) -> None:
        super().__init__(validator)
        self.keys = keys
        self.bounds = bounds
        self._values = values
        self._named = named or {}

    def value(self, key: object) -> Shape:
        """Return the shape of the value under a key.

        Raises:
            Refusal: no such key is declared.
        """
        shape = self._named.get(cast("str", key), self._values) if self._named else self._values
        if shape is None:
            raise Refusal("no such key is declared")
        return shape

    @property
    def only_values(self) -> Shape | None:
        """The shape of all values; ``None`` if it depends on the key."""
        return None if self._named else self._values

    def fits(self, value: object) -> bool:
        return isinstance(value, dict)

    def copy_in(self, value: object, depth_left: int) -> object:
        if not isinstance(value, dict) or (hasattr(value, "__missing__") and not isinstance(value, Tracked)):
            raise Refusal(f"a {type(value).__name__} cannot be tracked; declare a plain dict")
        check_depth(depth_left)
        kept: TrackedDict[object, object] = dict.__new__(TrackedDict)
        accept, put = self.keys.accept, dict.__setitem__
        for key, given in value.items():
            name = accept(key)
            try:
                item = self.value(name).copy_in(given, depth_left - 1)
            except Refusal as refusal:
                refusal.tail.append(self.keys.name(name))
                raise
            put(kept, name, item)
            if isinstance(item, Tracked):
                node = item._podium
                node.parent, node.key = kept, name
        kept._podium = TrackingNode(self, len(kept))
        return kept

    def encode(self, value: object) -> Json:
        assert isinstance(value, dict)
        return {self.keys.name(key): self.value(key).encode(item) for key, item in value.items()}

    def tokens_of(self, owner: object, child: Tracked) -> tuple[Token, ...]:
        """Return the path tokens from a dict to a child."""
        return (self.keys.name(child._podium.key),)
