"""Values that are JSON as they are: results of messages, and whatever else has no declared type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from chronicle.errors import InvalidInput
from podium.state.errors import InvalidValue
from podium.state.pointer import join
from podium.state.tracked.node import MAX_DEPTH, Refusal
from podium.state.tracked.scalars import json_scalar

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject

__all__ = ["plain_json", "sent_json", "sent_object"]


def plain_json(value: object, max_depth: int = MAX_DEPTH) -> Json:
    """Return a copy of a value as plain JSON that shares nothing with it; tuples become lists.

    Containers of a state are accepted like plain lists and dicts.

    Raises:
        InvalidValue: JSON cannot represent the value, or a part of it; the message has the path and how to mend it.
    """
    try:
        return _copied(value, max_depth)
    except Refusal as refusal:
        raise InvalidValue(join(reversed(refusal.tail)), refusal.reason) from None


def sent_json(value: object, method: str) -> Json:
    """Return a copy of a value that an agent's code sends, as plain JSON.

    Args:
        method: of the context, for the error.

    Raises:
        InvalidInput: JSON cannot represent the value.
    """
    try:
        return plain_json(value)
    except InvalidValue as error:
        raise InvalidInput(f"what {method} sends is not JSON at {error}") from error


def sent_object(value: object, method: str) -> JsonObject:
    """Return a copy of a message that an agent's code sends, as plain JSON.

    Raises:
        InvalidInput: it is no dict, or JSON cannot represent it.
    """
    if not isinstance(value, dict):
        raise InvalidInput(f"{method} takes a dict, not {type(value).__name__}")
    return cast("JsonObject", sent_json(value, method))


def _copied(value: object, depth_left: int) -> Json:
    if isinstance(value, dict | list | tuple):
        if not depth_left:
            raise Refusal(f"containers are nested deeper than {MAX_DEPTH} levels, or one contains itself")
        if isinstance(value, dict):
            return {_name(key): _member(key, item, depth_left - 1) for key, item in value.items()}
        return [_member(at, item, depth_left - 1) for at, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise Refusal(f"JSON cannot hold {float(value)}; give None, or text")
    if value is None or isinstance(value, str | int | float):
        return json_scalar(value)
    kind = type(value).__name__
    raise Refusal(f"a {kind} is not JSON; give text, numbers, lists and dicts, such as model.model_dump(mode='json')")


def _member(token: str | int, item: object, depth_left: int) -> Json:
    try:
        return _copied(item, depth_left)
    except Refusal as refusal:
        refusal.tail.append(token)
        raise


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise Refusal(f"the key {key!r} is a {type(key).__name__}, and keys of JSON objects are text; use str()")
    name = json_scalar(key)
    assert isinstance(name, str), "the stored form of text is text"
    return name
