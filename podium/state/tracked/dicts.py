"""Tracked dicts: real dicts whose every change is noted, key by key.

In a document an object's members have no order, so a dict's order does not survive being stored: it comes back in the
order of its keys.
"""

# Not every shape needs all that the protocol gives it.
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
    Node,
    Refusal,
    Tracked,
    check_room,
    link,
    note_old,
    refused,
    room_in,
    same_leaf,
    unlink,
)
from podium.state.tracked.plain_values import plain
from podium.state.tracked.scalars import Declared, Shape, json_scalar, of_validation, validated

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
    """A dict in a state. What is put in is validated and copied in; what is read is the dict's own."""

    __slots__ = ("_podium",)

    def __new__(cls, *given: Any, **more: Any) -> Any:
        """Return a plain dict: ``type(items)(...)`` asks for another dict, which is in no state."""
        return dict(*given, **more)

    def __init__(self, *others: Any, **more: Any) -> None:  # only if called once more: see __new__
        self.update(*others, **more)

    def __setitem__(self, key: K, value: V) -> None:
        # What agents do often: `guarded` is written out here, as each call costs.
        node = self._podium
        guard = node.guard or guard_of(self)
        with guard.lock:
            if current_permit() is not guard.permit:
                check_access(guard, self)
            key = self._admit_key(key)
            if isinstance(value, Tracked) and self.get(key) is value:
                return  # the last step of ``items["x"] += [...]``: the same container goes where it is
            shape = node.shape
            try:
                kept = shape.value(key).admit(value, room_in(self, value))
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
        key = self._admit_key(key)
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, /, *others: Any, **more: Any) -> None:
        self._update(dict(*others, **more))

    @guarded
    def _update(self, given: dict[Any, Any]) -> None:
        admitted: dict[K, V] = {}
        for key, value in given.items():
            name = self._admit_key(key)
            if not isinstance(value, Tracked) or self.get(name) is not value:
                admitted[name] = self._admit(name, value)
        for key, value in admitted.items():
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

    def _admit_key(self, key: object) -> K:
        shape = self._podium.shape
        try:
            kept = cast("K", shape.keys.admit(key))
        except Refusal as refusal:
            raise refused(self, refusal) from refusal.__cause__
        return self._own(kept) if kept in self else kept

    def _own(self, key: K) -> K:
        """Return the dict's own key that is equal to ``key``: 1 and True are, or two moments, and are named apart."""
        if type(key) is self._podium.shape.keys.exact:
            return key
        return next(own for own in self if own == key)

    def _admit(self, key: K, value: object) -> V:
        shape = self._podium.shape
        try:
            return cast("V", shape.value(key).admit(value, room_in(self, value)))
        except Refusal as refusal:
            refusal.tail.append(shape.keys.name(key))
            raise refused(self, refusal) from refusal.__cause__

    def _put(self, key: K, kept: V) -> None:
        """Put a value that was admitted."""
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
    """What keys a dict may have, and how they are written: different keys always differently."""

    @property
    def exact(self) -> type | None:
        """The type of which equal keys are always named alike; ``None`` if there is none."""
        ...

    def admit(self, key: object) -> object:
        """Return a key from outside as it is kept.

        Raises:
            Refusal: it is not of the declared type, or not declared and not text.
        """
        ...

    def name(self, key: object) -> str:
        """Return the key as an object's member is named."""
        ...


class TextKeys:
    """Keys that are declared as text, or not declared.

    Args:
        validator: pydantic's for the declared type; ``None`` if there is none.
    """

    __slots__ = ("_validator",)
    exact: Final = str

    def __init__(self, validator: SchemaValidator | None = None) -> None:
        self._validator = validator

    def admit(self, key: object) -> object:
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


class CodedKeys:
    """Keys of a declared type that pydantic writes as text and reads back.

    Args:
        validator: pydantic's for a dict of such keys and values of any kind.
        serializer: pydantic's for the same.
        exact: the type of all kept keys, if it is known that what is written reads back as the same key and that equal
            keys are written alike; otherwise each key is tried, and so no two keys are written alike.
    """

    __slots__ = ("_serializer", "_validator", "exact")

    def __init__(self, validator: SchemaValidator, serializer: SchemaSerializer, exact: type | None) -> None:
        self._validator = validator
        self._serializer = serializer
        self.exact = exact

    def admit(self, key: object) -> object:
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


class DictShape(Declared):
    """A declared dict.

    Args:
        keys: what keys it may have.
        values: the shape of its values.
        validator: pydantic's for the declared type.
        bounds: pydantic's for what the declared type asks of the dict as a whole; ``None`` if nothing.
        named: shapes of values under known keys (a TypedDict); then ``values`` is for the others, ``None`` if there
            may be none.
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
            Refusal: there may be no such key.
        """
        shape = self._named.get(cast("str", key), self._values) if self._named else self._values
        if shape is None:
            raise Refusal("no such key is declared")
        return shape

    @property
    def only_values(self) -> Shape | None:
        """The shape of all values; ``None`` if that depends on the key."""
        return None if self._named else self._values

    def fits(self, value: object) -> bool:
        return isinstance(value, dict)

    def adopt(self, value: object, room: int) -> object:
        if not isinstance(value, dict) or (hasattr(value, "__missing__") and not isinstance(value, Tracked)):
            raise Refusal(f"a {type(value).__name__} cannot be tracked; declare a plain dict")
        check_room(room)
        kept: TrackedDict[object, object] = dict.__new__(TrackedDict)
        admit, put = self.keys.admit, dict.__setitem__
        for key, given in value.items():
            name = admit(key)
            try:
                item = self.value(name).adopt(given, room - 1)
            except Refusal as refusal:
                refusal.tail.append(self.keys.name(name))
                raise
            put(kept, name, item)
            if isinstance(item, Tracked):
                node = item._podium
                node.parent, node.key = kept, name
        kept._podium = Node(self, len(kept))
        return kept

    def encode(self, value: object) -> Json:
        assert isinstance(value, dict)
        return {self.keys.name(key): self.value(key).encode(item) for key, item in value.items()}

    def tokens_of(self, owner: object, child: Tracked) -> tuple[Token, ...]:
        """Return the tokens from a dict to a child of it."""
        return (self.keys.name(child._podium.key),)
