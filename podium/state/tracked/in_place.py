"""Patches applied to a live state in place: what code of the turn holds of the state stays valid.

Replaying a document moves plain JSON (`podium.state.patch.apply`). A turn that goes on from the end of a recorded step
moves its live state instead: each value of the patch is read as a stored state is, and put in as a recorded change. So
it is part of the next drain, like a change by the turn's code; the cost is that of the patch. Where a container is
replaced by one of its own kind, it keeps its identity and gets the other's members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from chronicle.canonical import Json, encode
from podium.state.errors import PatchError, StateError
from podium.state.guard import current_permit
from podium.state.patch.apply import apply_patch
from podium.state.pointer import join, parse
from podium.state.tracked.any_json import AnyShape
from podium.state.tracked.dicts import TrackedDict
from podium.state.tracked.guarded import check_access, guard_of
from podium.state.tracked.lists import TrackedList
from podium.state.tracked.models import ModelShape, put_field
from podium.state.tracked.node import Refusal, Tracked, depth_left_in
from podium.state.tracked.scalars import Coded
from podium.state.tracked.sets import TrackedSet
from podium.state.tracked.shape import Shape, of_validation
from podium.state.tracked.shape_combinators import Checked, Deferred, Nullable, UnionShape
from podium.state.tracked.tuples import TrackedTuple

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

    from podium.state.tracked.models import TrackedModel

__all__ = ["patch_in_place"]


def patch_in_place(root: Tracked, patch: Sequence[Mapping[str, Json]]) -> None:
    """Apply an RFC 6902 patch of add, replace and remove to a live state.

    Args:
        root: of the state; the calling code may change it.
        patch: from the document of the state as it is now. If it does not fit, the operations before the one that does
            not are applied.

    Raises:
        PatchError: an operation does not fit the state.
    """
    guard = guard_of(root)
    with guard.lock:
        if current_permit() is not guard.permit:
            check_access(guard, root)
        todo = [(parse(cast("str", operation["path"])), operation) for operation in patch]
        while todo:
            path = todo[0][1]["path"]
            try:
                del todo[: _apply_first(root, todo)]
            except Refusal as refusal:
                raise PatchError(f"{path!r} does not fit the state: {refusal.reason}") from refusal
            except (LookupError, AttributeError, ValueError) as error:
                if isinstance(error, StateError):
                    raise
                raise PatchError(f"{path!r} is not in the state: {error}") from error


def _apply_first(root: Tracked, todo: Sequence[tuple[list[str], Mapping[str, Json]]]) -> int:
    """Apply the first operation, and those after it that belong to it; return how many."""
    tokens, operation = todo[0]
    if not tokens:
        _fill(_document_of(root), operation["value"])
        return 1
    owner = root
    for depth, token in enumerate(tokens[:-1], 1):
        owner = _document_of(owner)
        slot = _inside(_slot(owner, token))
        if isinstance(slot, UnionShape):  # between two operations its document may be of no declared type
            count = 0
            while count < len(todo) and todo[count][0][:depth] == tokens[:depth] and len(todo[count][0]) > depth:
                count += 1
            document = slot.encode(_member(owner, token))
            for rest, each in todo[:count]:
                document = apply_patch(document, [{**each, "path": join(rest[depth:])}])
            _replace(owner, token, slot, document)
            return count
        owner = cast("Tracked", _member(owner, token))
    _change(_document_of(owner), tokens[-1], cast("str", operation["op"]), operation.get("value"))
    return 1


def _slot(owner: Tracked, token: str) -> Shape:
    """Return the shape of the member under a token of a path."""
    shape = owner._podium.shape
    if isinstance(owner, TrackedList):
        return cast("Shape", shape.item)
    if isinstance(owner, TrackedTuple):
        return cast("Shape", shape.slot(int(token), len(owner)))
    if isinstance(owner, TrackedDict):
        return cast("Shape", shape.value(shape.keys.read(token)))
    return cast("Shape", shape.slot(token))


def _member(owner: Tracked, token: str) -> object:
    """Return the member under a token of a path; ``None`` if a dict or model has none."""
    if isinstance(owner, TrackedList | TrackedTuple):
        return owner[int(token)]
    if isinstance(owner, TrackedDict):
        return owner.get(owner._podium.shape.keys.read(token))
    return cast("object", getattr(owner, token, None))


def _put(owner: Tracked, token: str, kept: Any) -> None:
    """Store an accepted value in place of the member under a token."""
    if isinstance(owner, TrackedList):
        owner._replace(int(token), int(token) + 1, (kept,))
    elif isinstance(owner, TrackedDict):
        owner._put(owner._podium.shape.keys.read(token), kept)
    elif isinstance(owner, TrackedTuple):
        raise PatchError("a member of a tuple can only be replaced with its tuple")
    else:
        put_field(cast("TrackedModel", owner), token, kept)


def _document_of(owner: Tracked) -> Tracked:
    """Return the container that is a container's document: for a `pydantic.RootModel` the one inside."""
    while isinstance(owner._podium.shape, ModelShape) and owner._podium.shape.is_root_model:
        root = cast("Any", owner).root
        if not isinstance(root, Tracked):
            break
        owner = root
    return owner


def _inside(slot: Shape) -> Shape:
    """Return the shape inside of those that only wrap it."""
    while True:
        if isinstance(slot, Nullable | Checked):
            slot = slot.inner
        elif isinstance(slot, Deferred):
            slot = slot.shape
        else:
            return slot


def _change(owner: Tracked, token: str, verb: str, value: Json) -> None:
    """Apply one operation to a member of a container."""
    if isinstance(owner, TrackedSet):
        item: Shape = owner._podium.shape.item
        if verb != "add":
            owner.remove(sorted(owner, key=lambda each: encode(item.encode(each)))[int(token)])
        if verb != "remove":
            owner._put(_read(item, owner, value))
    elif verb == "remove":
        if isinstance(owner, TrackedList):
            del owner[int(token)]
        elif isinstance(owner, TrackedDict):
            del owner[owner._podium.shape.keys.read(token)]
        else:
            delattr(owner, token)
    elif verb == "add" and isinstance(owner, TrackedList):
        at = int(token)
        if at > len(owner):
            raise IndexError(f"the list has {len(owner)} items")
        owner._replace(at, at, (_read(owner._podium.shape.item, owner, value),))
    else:
        _replace(owner, token, _slot(owner, token), value)


def _replace(owner: Tracked, token: str, slot: Shape, value: Json) -> None:
    """Make a member a value: the container there keeps its identity if the value is of its kind."""
    inside = _inside(slot)
    if isinstance(inside, Coded) and not inside.alone:
        setattr(owner, token, value)  # its validator reads the other fields
        return
    now = _member(owner, token)
    if isinstance(now, Tracked) and not isinstance(inside, UnionShape) and _is_of_kind(now, value):
        _fill(_document_of(now), value)
        return
    kept = _read(slot, owner, value)
    if isinstance(now, Tracked) and isinstance(kept, Tracked) and _is_of_kind(now, value) and _same_kind(now, kept):
        _fill(_document_of(now), value)
    else:
        _put(owner, token, kept)


def _is_of_kind(now: Tracked, value: Json) -> bool:
    """Return whether a container can be given the members of a value."""
    inner = _document_of(now)
    shape = inner._podium.shape
    if isinstance(shape, ModelShape) and (
        shape.is_root_model or shape.reads_through_validators or any(map(shape.is_frozen, shape.fields))
    ):
        return False
    kind = list if isinstance(inner, TrackedList | TrackedSet) else dict
    return isinstance(value, kind) and not isinstance(inner, TrackedTuple)


def _same_kind(one: Tracked, other: Tracked) -> bool:
    """Return whether two members of a union are of the same arm."""
    return one._podium.shape is other._podium.shape


def _fill(owner: Tracked, value: Json) -> None:
    """Make a container's document a value of its own kind."""
    if isinstance(owner, TrackedSet):
        news = [_read(owner._podium.shape.item, owner, each) for each in cast("list[Json]", value)]
        owner.clear()
        for item in news:
            owner._put(item)
    elif isinstance(owner, TrackedList):
        items = cast("list[Json]", value)
        del owner[len(items) :]
        for at, each in enumerate(items):
            _change(owner, str(at), "replace" if at < len(owner) else "add", each)
    else:
        members = cast("dict[str, Json]", value)
        for name in cast("dict[str, Json]", owner._podium.shape.encode(owner)):
            if name not in members:
                _change(owner, name, "remove", None)
        for name, each in members.items():
            _change(owner, name, "replace", each)


def _read(shape: Shape, owner: Tracked, value: Json) -> Any:
    """Return a stored value as a member of a container, without a parent yet.

    Raises:
        Refusal: it is not of the declared type.
    """
    return _load(shape, value, depth_left_in(owner, value))


def _load(shape: Shape, value: Json, depth_left: int) -> object:
    while isinstance(shape, Nullable | Deferred):
        if isinstance(shape, Nullable) and value is None:
            return None
        shape = shape.inner if isinstance(shape, Nullable) else shape.shape
    if isinstance(shape, AnyShape):
        return shape.copy_in(value, depth_left)
    validator: SchemaValidator = cast("Any", shape).validator
    try:
        read = validator.validate_json(encode(value), by_alias=False, by_name=True)
    except ValidationError as error:
        raise of_validation(error, value) from error
    return shape.copy_in(read, depth_left)
