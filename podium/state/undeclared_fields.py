"""Detection of stored fields that a class no longer declares.

pydantic ignores them silently, and the next commit would drop them from the stored document too. So a document that has
one is refused when it is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from podium.state.tracked.any_json import AnyShape
from podium.state.tracked.dicts import DictShape, TrackedDict
from podium.state.tracked.lists import TrackedList
from podium.state.tracked.models import ModelShape
from podium.state.tracked.node import Tracked
from podium.state.tracked.tuples import TrackedTuple

if TYPE_CHECKING:
    from pydantic import BaseModel

    from chronicle.canonical import Json
    from podium.state.pointer import Token

__all__ = ["undeclared_field"]


def undeclared_field(owner: Tracked, document: Json) -> list[Token] | None:
    """Return the path of a field of a document that is not in the object loaded from it; ``None`` if there is none.

    Where a validator may have consumed the field, or the class allows undeclared fields, none is reported.
    """
    shape = owner._podium.shape
    if isinstance(shape, ModelShape):
        return _undeclared_in_model(cast("BaseModel", owner), shape, document)
    if isinstance(owner, TrackedDict):
        return _undeclared_in_dict(owner, shape, document)
    undeclared = isinstance(owner, TrackedList) and isinstance(shape.item, AnyShape)
    if not isinstance(owner, TrackedList | TrackedTuple) or not isinstance(document, list) or undeclared:
        return None
    return _undeclared_in_parts([(index, *part) for index, part in enumerate(zip(owner, document, strict=False))])


def _undeclared_in_dict(owner: TrackedDict[Any, Any], shape: DictShape, document: Json) -> list[Token] | None:
    if not isinstance(document, dict) or isinstance(shape.only_values, AnyShape):
        return None
    names = {shape.keys.name(key): item for key, item in owner.items()}
    for name in document:
        if name not in names and shape.only_values is None:  # a TypedDict: pydantic drops what it does not declare
            return [name]
    return _undeclared_in_parts([(name, item, document.get(name)) for name, item in names.items()])


def _undeclared_in_model(owner: BaseModel, shape: ModelShape, document: Json) -> list[Token] | None:
    if shape.is_root_model:
        root = owner.__dict__["root"]
        return undeclared_field(root, document) if isinstance(root, Tracked) else None
    if not isinstance(document, dict):
        return None
    if not shape.takes_others and not shape.reads_through_validators:
        for name in document:
            if name not in shape.declared:
                return [name]
    return _undeclared_in_parts([(name, owner.__dict__[name], document.get(name)) for name in shape.fields])


def _undeclared_in_parts(parts: list[tuple[Any, Any, Json]]) -> list[Token] | None:
    for token, item, document in parts:
        lost = undeclared_field(item, document) if isinstance(item, Tracked) else None
        if lost is not None:
            return [token, *lost]
    return None
