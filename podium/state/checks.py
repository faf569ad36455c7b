"""Validation of a state at commit: the validators that see more than one value.

Single values are validated when they are assigned. Validated here, because it need only hold at the end of a turn:
model validators, limits on the size of a container, validators around a container, and the round trip of union values.
Only members that changed since the last drain are validated, and only where something is declared.

A validator that corrects its model (``mode="after"``, assigning fields) changes the state: that is part of the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, cast

from pydantic import BaseModel, ValidationError

from chronicle.canonical import encode
from podium.state.errors import InvalidState, StateError
from podium.state.patch.diff import diff
from podium.state.pointer import Token, join, parse
from podium.state.tracked.any_json import AnyShape
from podium.state.tracked.dicts import DictShape, TrackedDict
from podium.state.tracked.drain import check_list
from podium.state.tracked.lists import ListShape, TrackedList, index_of
from podium.state.tracked.models import ModelShape, model_class
from podium.state.tracked.node import Refusal, Tracked, path_of
from podium.state.tracked.plain_values import plain
from podium.state.tracked.sets import SetShape, TrackedSet
from podium.state.tracked.shape import Shape, of_validation, validated
from podium.state.tracked.shape_combinators import Checked, Deferred, Nullable, UnionShape
from podium.state.tracked.tuples import TrackedTuple

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

__all__ = ["check_tree"]


def check_tree(owner: Tracked, *, new: bool = False) -> None:
    """Run the validators of changed members in a container and below it, innermost first.

    Args:
        owner: the container.
        new: it was put in since the last drain, so all of it counts as changed.

    Raises:
        InvalidState: a validator refused.
        UnseenChange: a list does not match its recorded edits.
    """
    for key, child, child_is_new in list(_changed_children(owner, new=new)):
        check_tree(child, new=child_is_new)
        _check_slot(owner, key, child, _slot(owner, key))
    _check_whole(owner)


def _changed_children(owner: Tracked, *, new: bool) -> Iterator[tuple[Any, Tracked, bool]]:
    node = owner._podium
    if isinstance(node.shape, ListShape | DictShape) and _is_undeclared(node.shape):
        return
    if isinstance(owner, TrackedList):
        pieces = node.pieces
        if new:
            yield from ((at, item, True) for at, item in enumerate(owner) if isinstance(item, Tracked))
            return
        if pieces is not None and not node.shape.item.leaf:
            check_list(owner)
            for change in pieces.changes():
                for at in range(change.start, change.start + change.inserted):
                    if isinstance(owner[at], Tracked):
                        yield at, owner[at], True
        changed_children = list((node.changed_children or {}).values())
        for child in changed_children:
            at = index_of(owner, child, len(changed_children))
            if pieces is None or not pieces.is_new(at):
                yield at, child, False
        return
    if new:
        yield from ((key, item, True) for key, item in _items(owner) if isinstance(item, Tracked))
        return
    olds = node.olds or {}
    if not isinstance(owner, TrackedSet):
        for key in olds:
            member = _member(owner, key)
            if isinstance(member, Tracked):
                yield key, member, True
    for child in (node.changed_children or {}).values():
        if child._podium.key not in olds:
            yield child._podium.key, child, False


def _items(owner: Tracked) -> Iterator[tuple[Any, Any]]:
    if isinstance(owner, TrackedDict):
        yield from owner.items()
    elif isinstance(owner, TrackedTuple):
        yield from enumerate(owner)
    elif isinstance(owner, BaseModel):
        shape: ModelShape = owner._podium.shape
        yield from ((name, owner.__dict__[name]) for name in shape.fields)
        yield from (owner.__pydantic_extra__ or {}).items()


def _member(owner: Tracked, key: Any) -> object:
    if isinstance(owner, TrackedDict):
        return owner.get(key)
    model: Any = owner  # of pydantic's
    return model.__dict__.get(key, (model.__pydantic_extra__ or {}).get(key))


def _slot(owner: Tracked, key: Any) -> Shape:
    shape = owner._podium.shape
    if isinstance(shape, ListShape):
        return shape.item
    if isinstance(shape, DictShape):
        return shape.value(key)
    if isinstance(owner, TrackedTuple):
        return cast("Shape", shape.slot(key, len(owner)))
    return cast("Shape", shape.slot(key))


def _is_undeclared(shape: ListShape | DictShape) -> bool:
    inner = shape.item if isinstance(shape, ListShape) else shape.only_values
    return isinstance(inner, AnyShape)


def _check_slot(owner: Tracked, key: Any, child: Tracked, slot: Shape) -> None:
    """Run the validators declared around a container, for its position."""
    while isinstance(slot, Nullable | Deferred):
        slot = slot.inner if isinstance(slot, Nullable) else slot.shape
    try:
        if isinstance(slot, UnionShape) and slot.needs_round_trip:
            slot.check_round_trip(child)
        elif isinstance(slot, Checked):
            _recheck(owner, key, child, slot)
    except Exception as error:  # noqa: BLE001  raised again, with its path
        _raise_at(child, error)


def _recheck(owner: Tracked, key: Any, child: Tracked, slot: Checked) -> None:
    value = plain(child)
    if isinstance(owner, BaseModel) and key in model_class(owner).model_fields:
        try:
            again = owner._podium.shape.validate_field(owner, key, value)
        except Refusal as refusal:
            refusal.tail.pop()  # the field's name: the path of the child has it
            raise
    else:
        again = validated(slot.validator, value)
    inner = slot.inner
    if again != child or encode(inner.encode(again)) != encode(inner.encode(child)):
        if isinstance(owner, BaseModel):
            setattr(owner, key, again)
        else:
            cast("Any", owner)[key] = again


def _check_whole(owner: Tracked) -> None:
    """Run the validators declared for a container as a whole."""
    shape = owner._podium.shape
    try:
        if isinstance(shape, ListShape | DictShape | SetShape):
            if shape.bounds is not None:
                validated(shape.bounds, plain(owner))
        elif isinstance(shape, ModelShape):
            model: Any = owner
            _check_model(model, shape)
    except Exception as error:  # noqa: BLE001  raised again, with its path
        _raise_at(owner, error)


def _check_model(owner: BaseModel, shape: ModelShape) -> None:
    for validator in shape.after_validators:
        answer = validated(validator, owner)
        if answer is not owner and not _is_equal(shape, owner, answer):
            raise Refusal(
                "a model validator returned another instance, which would be ignored; change self and return it"
            )
    if shape.reads_through_validators:
        _check_round_trip(owner, shape.validator)


def _check_round_trip(owner: BaseModel, validator: SchemaValidator) -> None:
    """Check that a model with validators of raw data loads from its committed document."""
    shape = cast("Any", owner)._podium.shape
    document = shape.encode(owner)
    try:
        again = validator.validate_json(encode(document), by_alias=False, by_name=True)
    except ValidationError as error:
        raise of_validation(error, document) from error
    changes = diff(document, shape.encode(again))
    if changes:
        raise Refusal(
            "its validators are not idempotent: when they run again, as they do at loading, they change the value: "
            f"{changes[0]}",
            *reversed(parse(str(changes[0]["path"]))),
        )


def _is_equal(shape: ModelShape, owner: BaseModel, other: object) -> bool:
    return shape.fits(other) and encode(shape.encode(other)) == encode(shape.encode(owner))


def _raise_at(owner: Tracked, error: Exception) -> NoReturn:
    """Raise an error of a container's validation as an `InvalidState` with its path."""
    if isinstance(error, Refusal):
        tokens: list[Token] = [*path_of(owner), *reversed(error.tail)]
        raise InvalidState(join(tokens), error.reason) from error.__cause__
    if isinstance(error, StateError):
        raise error
    # A user's validator: pydantic passes on all but ValueError and AssertionError.
    raise InvalidState(join(path_of(owner)), f"a validator raised {type(error).__name__}: {error}") from error
