"""Tracked models: pydantic models that validate and record each assignment.

A `DeltaState` is tracked itself. Any other pydantic model becomes, when it is copied into a state, an instance of a
hidden subclass of its class (`tracked_class`): an instance of the user's class with its methods, equal to untracked
ones, that copies and pickles as the user's class. Assigning ``__class__`` instead is not possible, because an instance
needs a slot for its node.
"""

# Not every shape uses all arguments of the protocol.
# ruff: noqa: ARG002
from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, cast

from pydantic import BaseModel, ValidationError

from podium.state.errors import StateError, UnstorableState
from podium.state.guard import Guard, current_permit
from podium.state.pointer import Token, join
from podium.state.tracked.guarded import check_access, guard_of
from podium.state.tracked.node import (
    MAX_DEPTH,
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
from podium.state.tracked.shape import Declared, Shape, of_validation

if TYPE_CHECKING:
    from typing import Self

    from pydantic_core import SchemaValidator

    from chronicle.canonical import Json

__all__ = ["ModelShape", "TrackedModel", "model_class", "put_field", "track_root", "tracked_class"]

_set = object.__setattr__


class _ModelNode(TrackingNode):
    """The bookkeeping of a model.

    Attributes:
        held: the instance's ``__dict__`` and undeclared fields; they are others after a second ``__init__``.
    """

    __slots__ = ("held",)

    def __init__(self, shape: ModelShape, fields: dict[str, Any], extra: dict[str, Any] | None) -> None:
        super().__init__(shape)
        self.held = (fields, extra)


class TrackedModel(Tracked):
    """Tracking for a model, mixed into its class."""

    __slots__ = ()

    if TYPE_CHECKING:
        __pydantic_fields_set__: set[str]
        __pydantic_extra__: dict[str, Any] | None
        __pydantic_private__: dict[str, Any] | None

    if not TYPE_CHECKING:  # with these methods, type checkers would allow any attribute

        def __setattr__(self, name: str, value: object) -> None:
            node = _node_of(self)
            if node is None or not node.shape.has(self, name):
                super().__setattr__(name, value)
                return
            if node.shape.is_frozen(name):
                super().__setattr__(name, value)  # raises pydantic's error
            guard = node.guard or guard_of(self)
            with guard.lock:
                if current_permit() is not guard.permit:
                    check_access(guard, self)
                old = _get(self, name)
                if value is old and isinstance(value, Tracked):
                    return  # the last step of ``state.items += [...]``: the container is assigned to its own field
                kept = node.shape.accept_field(self, name, value)
                put_field(self, name, kept)

        def __delattr__(self, name: str) -> None:
            node = _node_of(self)
            if node is None or not node.shape.has(self, name):
                super().__delattr__(name)
                return
            if name in node.shape.fields:
                raise refused(self, Refusal("a declared field cannot be deleted; assign another value", name))
            guard = node.guard or guard_of(self)
            with guard.lock:
                if current_permit() is not guard.permit:
                    check_access(guard, self)
                old = _get(self, name)
                super().__delattr__(name)  # refuses if the model is frozen
                note_old(self, name, old)
                unlink(old)

    def __copy__(self) -> Self:
        """Return a plain instance that shares nothing mutable with this one."""
        return cast("Self", _restore(*self._parts()))

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        copied = self.__copy__()
        if memo is not None:
            memo[id(self)] = copied
        return copied

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a plain instance that shares nothing mutable with this one, with some fields changed."""
        copied = self.__copy__()
        for name, value in (update or {}).items():
            setattr(copied, name, value)
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return (_restore, self._parts())

    def _become_root(self) -> None:
        """Make a newly built instance tracked: a `DeltaState` only; other models are tracked once put into a state."""

    def _parts(self) -> tuple[Any, ...]:
        return (
            model_class(cast("BaseModel", self)),
            {name: plain(value) for name, value in self.__dict__.items()},
            {name: plain(value) for name, value in (self.__pydantic_extra__ or {}).items()} or None,
            set(self.__pydantic_fields_set__),
            dict(self.__pydantic_private__) if self.__pydantic_private__ else None,
        )


class ModelShape(Declared):
    """A pydantic model class.

    Attributes:
        declared: the names of its declared fields, including those excluded from serialization.

    Args:
        cls: the class, as the user wrote it.
        fields: builds the shapes of its declared fields, without those excluded from serialization; called once, at
            first use, because classes may refer to each other.
        others: builds the shape of undeclared fields; ``None`` if the class allows none.
        field_validator: validates assignments of single fields, without the model's own validators.
        validator: pydantic's for the class.
        after_validators: the class's validators of mode "after"; each takes an instance.
        reads_through_validators: the class has validators, or an ``__init__`` of its own, that see raw data before the
            instance exists.
    """

    def __init__(
        self,
        cls: type[BaseModel],
        fields: Callable[[], dict[str, Shape]],
        others: Callable[[], Shape] | None,
        field_validator: SchemaValidator,
        validator: SchemaValidator,
        after_validators: Sequence[SchemaValidator],
        *,
        reads_through_validators: bool,
    ) -> None:
        super().__init__(validator)
        self.cls = cls
        self.after_validators = after_validators
        self.reads_through_validators = reads_through_validators
        self.is_root_model = bool(getattr(cls, "__pydantic_root_model__", False))
        self._make_fields = fields
        self._make_others = others
        self._fields: dict[str, Shape] | None = None
        self._others: Shape | None = None
        self._field_validator = field_validator
        self.declared = frozenset(cls.model_fields)
        self._frozen = bool(cls.model_config.get("frozen"))
        self._frozen_fields = frozenset(name for name, field in cls.model_fields.items() if field.frozen)

    leaf: Final = False

    @property
    def fields(self) -> dict[str, Shape]:
        """The shapes of the stored fields, by name."""
        if self._fields is None:
            self._fields = self._make_fields()
            self._others = self._make_others() if self._make_others else None
        return self._fields

    @property
    def takes_others(self) -> bool:
        """Whether the class allows undeclared fields."""
        return self._make_others is not None

    def has(self, owner: BaseModel, name: str) -> bool:
        """Return whether ``name`` is a field of an instance, or may become one."""
        if name in self.fields:
            return True
        return (
            self._others is not None
            and not name.startswith("_")
            and name not in self.declared
            and not hasattr(self.cls, name)
        )

    def is_frozen(self, name: str) -> bool:
        """Return whether a field may not be assigned."""
        return self._frozen or name in self._frozen_fields

    def slot(self, name: str) -> Shape:
        """Return the shape of a field, declared or not.

        Raises:
            Refusal: the class allows no such field.
        """
        shape = self.fields.get(name, self._others)
        if shape is None:
            raise Refusal("no such field is declared", name)
        return shape

    def fits(self, value: object) -> bool:
        return isinstance(value, BaseModel) and model_class(value) is self.cls

    def accept_field(self, owner: BaseModel, name: str, value: object) -> object:
        """Validate a value for one field of an instance, as pydantic validates assignments, and copy it in.

        Raises:
            InvalidValue: it does not validate, or JSON cannot represent it.
        """
        tracked: Any = owner
        try:
            if name in self.declared:
                checked = self.validate_field(owner, name, value)
                return self._copy_in_field(name, self.slot(name), checked, depth_left_in(tracked, value) + 1)
            return self._accept_undeclared(name, value, depth_left_in(tracked, value))
        except Refusal as refusal:
            raise refused(tracked, refusal) from refusal.__cause__

    def validate_field(self, owner: BaseModel, name: str, value: object) -> object:
        """Return the value that pydantic produces for an assignment to a declared field.

        Raises:
            Refusal: it does not validate.
        """
        try:
            return self._field_validator.validate_assignment({**owner.__dict__}, name, value)[0][name]  # type: ignore[index]  # (fields, extra, set)
        except ValidationError as error:
            raise of_validation(error, {name: value}) from error

    def copy_in(self, value: object, depth_left: int) -> object:
        if not isinstance(value, BaseModel):
            raise Refusal(f"a {type(value).__name__} stands where a {self.cls.__name__} is declared")
        if model_class(value) is not self.cls:
            raise Refusal(
                f"a {type(value).__name__} would come back from JSON as the declared {self.cls.__name__}; "
                "declare a union of the classes it may be"
            )
        check_depth(depth_left)
        cls = tracked_class(self.cls)
        kept = cls.__new__(cls)
        extra = value.__pydantic_extra__
        private = value.__pydantic_private__
        _set(kept, "__dict__", value.__dict__)  # track() replaces it
        _set(kept, "__pydantic_extra__", dict(extra) if extra is not None else None)
        _set(kept, "__pydantic_fields_set__", set(value.__pydantic_fields_set__))
        _set(kept, "__pydantic_private__", dict(private) if private is not None else None)
        self.track(kept, depth_left)
        return kept

    def track(self, owner: BaseModel, depth_left: int) -> None:
        """Make a model without other references tracked, by copying in the values of its fields.

        Raises:
            Refusal: a value in it does not fit its type, or JSON cannot represent it.
        """
        tracked = cast("Tracked", owner)
        held = owner.__dict__
        kept: dict[str, Any] = {}
        for name, shape in self.fields.items():
            value = held[name] if name in held else self._default(name)
            kept[name] = item = self._copy_in_field(name, shape, value, depth_left)
            link(item, tracked, name)
        for name in self.declared.difference(kept).intersection(held):
            kept[name] = held[name]  # excluded from serialization: present, but not stored
        extra = owner.__pydantic_extra__
        if extra and self._others is not None:
            for name, value in extra.items():
                extra[name] = item = self._copy_in_field(name, self._others, value, depth_left)
                link(item, tracked, name)
        _set(owner, "__dict__", kept)
        _set(owner, "_podium", _ModelNode(self, kept, extra))

    def encode(self, value: object) -> Json:
        assert isinstance(value, BaseModel)
        if self.is_root_model:
            return self.fields["root"].encode(value.__dict__["root"])
        found = {name: shape.encode(value.__dict__[name]) for name, shape in self.fields.items()}
        if value.__pydantic_extra__ and self._others is not None:
            for name, item in value.__pydantic_extra__.items():
                found[name] = self._others.encode(item)
        return found

    def tokens_of(self, owner: object, child: Tracked) -> tuple[Token, ...]:
        """Return the path tokens from a model to a child."""
        return () if self.is_root_model else (child._podium.key,)

    def _copy_in_field(self, name: str, shape: Shape, value: object, depth_left: int) -> object:
        try:
            return shape.copy_in(value, depth_left - 1)
        except Refusal as refusal:
            if not self.is_root_model:
                refusal.tail.append(name)
            raise

    def _accept_undeclared(self, name: str, value: object, depth_left: int) -> object:
        try:
            return self.slot(name).accept(value, depth_left)
        except Refusal as refusal:
            refusal.tail.append(name)
            raise

    def _default(self, name: str) -> object:
        field = self.cls.model_fields[name]
        if field.is_required():
            raise Refusal("the field is required, and nothing is there", name)
        return field.get_default(call_default_factory=True, validated_data={})


def put_field(owner: TrackedModel, name: str, kept: object) -> None:
    """Store an accepted value in a field. The lock of the state is held."""
    model: Any = owner  # of pydantic's
    model.__pydantic_fields_set__.add(name)
    old = _get(model, name)
    if old is MISSING or not same_leaf(old, kept):
        note_old(owner, name, old)
        unlink(old)
        fields = model.__dict__ if name in owner._podium.shape.fields else model.__pydantic_extra__
        fields[name] = kept
        link(kept, owner, name)


def track_root(model: BaseModel, shape: ModelShape) -> None:
    """Make a newly built model the root of a state, unless it is tracked already.

    Raises:
        StateError: it was tracked already, and ``__init__`` ran again; it is unchanged.
        UnstorableState: a value in it does not fit its type, or JSON cannot represent it.
    """
    node = _node_of(model)
    if node is None:
        try:
            shape.track(model, MAX_DEPTH)
        except Refusal as refusal:
            raise UnstorableState(join(reversed(refusal.tail)), refusal.reason) from refusal.__cause__
        cast("Tracked", model)._podium.guard = Guard()
    elif node.held[0] is not model.__dict__:
        _set(model, "__dict__", node.held[0])
        _set(model, "__pydantic_extra__", node.held[1])
        raise _built_again(model)


def model_class(model: BaseModel) -> type[BaseModel]:
    """Return the class of a model as the user wrote it."""
    return model.__class__


def tracked_class(cls: type[BaseModel]) -> type[BaseModel]:
    """Return the class of tracked instances of a model class: itself for a `TrackedModel`."""
    if issubclass(cls, TrackedModel):
        return cls
    found = cls.__dict__.get("__podium_tracked__")
    if found is None:
        # ABCMeta's __new__, not pydantic's: the subclass adds no field, so it inherits validator, serializer and
        # decorators of its parent, and neither __init_subclass__ nor __pydantic_init_subclass__ is called.
        body = {
            "__slots__": ("_podium",),
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "__class__": property(lambda _: cls),
        }
        found = ABCMeta.__new__(type(cls), cls.__name__, (_Quiet, cls), body)
        type.__setattr__(cls, "__podium_tracked__", found)
    return cast("type[BaseModel]", found)


class _Quiet(TrackedModel):
    """First base of hidden subclasses; keeps their creation from the hooks of the user's classes."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Do not call the user's hook."""

    if not TYPE_CHECKING:  # the signature is the user's class's

        def __init__(self, *args: Any, **fields: Any) -> None:
            """Build an instance for ``type(self)(...)``; it is tracked once it is put into a state."""
            if _node_of(self) is not None:
                raise _built_again(self)
            super().__init__(*args, **fields)


def _restore(
    cls: type[Any], fields: dict[str, Any], extra: dict[str, Any] | None, fields_set: set[str], private: Any
) -> Any:
    """Build a plain instance from its parts; pickles refer to this function."""
    model: Any = cls.__new__(cls)  # type: ignore[call-overload]  # mypy takes Any for a metaclass
    _set(model, "__dict__", fields)
    _set(model, "__pydantic_extra__", (extra or {}) if cls.model_config.get("extra") == "allow" else None)
    _set(model, "__pydantic_fields_set__", fields_set)
    _set(model, "__pydantic_private__", private if private or not cls.__private_attributes__ else {})
    if isinstance(model, TrackedModel):
        model._become_root()  # a DeltaState: other models are built untracked
    return model


def _built_again(model: BaseModel) -> StateError:
    return StateError(
        f"this {model_class(model).__name__} was built already, and __init__ would change it untracked; assign its "
        "fields"
    )


def _node_of(model: object) -> _ModelNode | None:
    """Return a model's node; ``None`` while pydantic builds it."""
    try:
        node: _ModelNode = object.__getattribute__(model, "_podium")
    except AttributeError:
        return None
    return node


def _get(owner: BaseModel, name: str) -> object:
    if name in owner.__dict__:
        return owner.__dict__[name]
    return (owner.__pydantic_extra__ or {}).get(name, MISSING)
