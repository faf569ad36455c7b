"""Applying RFC 6902 patches to a document in place: the cost is that of the patch, not of the document.

Replay moves the document of an agent forward turn by turn; a library that copies the document for every patch would
make each turn cost the state's size. Only ``add``, ``replace`` and ``remove`` are supported: draining emits no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from podium.state.errors import PatchError
from podium.state.pointer import parse

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject

__all__ = ["Patch", "apply_patch", "copy_json"]

Patch: TypeAlias = "list[JsonObject]"
"""RFC 6902 operations, in order of application."""

_MISSING = object()


def apply_patch(document: Json, patch: Sequence[Mapping[str, Json]]) -> Json:
    """Apply a patch to a document in place.

    The values of the patch are copied, so document and patch share no container.

    Returns:
        the document; another object only where the patch replaces the whole of it (path ``""``).

    Raises:
        PatchError: an operation does not fit the document or is not add, replace or remove. The operations before it
            are undone, so the document is unchanged.
    """
    undo: list[Callable[[], object]] = []
    try:
        for operation in patch:
            document = _apply(document, operation, undo)
    except PatchError:
        for step in reversed(undo):
            step()
        raise
    return document


def copy_json(value: Json) -> Json:
    """Return a JSON value that shares no container with ``value``."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def _apply(document: Json, operation: Mapping[str, Json], undo: list[Callable[[], object]]) -> Json:
    verb, path = operation.get("op"), operation.get("path")
    if verb not in ("add", "replace", "remove") or not isinstance(path, str):
        raise PatchError(f"{dict(operation)!r} is not an add, replace or remove with a path")
    value = operation.get("value", _MISSING)
    if value is _MISSING and verb != "remove":
        raise PatchError(f"the {verb} at {path!r} has no value")
    try:
        tokens = parse(path)
    except ValueError as error:
        raise PatchError(str(error)) from error
    if not tokens:
        if verb == "remove":
            raise PatchError("the whole document cannot be removed")
        return copy_json(cast("Json", value))
    parent = _walk(document, tokens[:-1], path)
    new = None if verb == "remove" else copy_json(cast("Json", value))
    if isinstance(parent, dict):
        _apply_to_object(parent, tokens[-1], verb, new, path, undo)
    elif isinstance(parent, list):
        _apply_to_array(parent, tokens[-1], verb, new, path, undo)
    else:
        raise PatchError(f"{path!r} leads into a value that is neither an object nor an array")
    return document


def _walk(document: Json, tokens: list[str], path: str) -> Json:
    here = document
    for token in tokens:
        if isinstance(here, dict):
            if token not in here:
                raise PatchError(f"{path!r} is not in the document: no key {token!r}")
            here = here[token]
        elif isinstance(here, list):
            here = here[_index(token, len(here), path)]
        else:
            raise PatchError(f"{path!r} leads into a value that is neither an object nor an array")
    return here


def _apply_to_object(
    parent: JsonObject, key: str, verb: object, new: Json, path: str, undo: list[Callable[[], object]]
) -> None:
    if verb != "add" and key not in parent:
        raise PatchError(f"{path!r} is not in the document, so it cannot be {verb}d")
    if key in parent:
        old = parent[key]
        undo.append(lambda: parent.__setitem__(key, old))
    else:
        undo.append(lambda: parent.__delitem__(key))
    if verb == "remove":
        del parent[key]
    else:
        parent[key] = new


def _apply_to_array(
    parent: list[Json], token: str, verb: object, new: Json, path: str, undo: list[Callable[[], object]]
) -> None:
    if verb == "add":
        index = len(parent) if token == "-" else _index(token, len(parent) + 1, path)
        parent.insert(index, new)
        undo.append(lambda: parent.__delitem__(index))
        return
    index = _index(token, len(parent), path)
    old = parent[index]
    if verb == "remove":
        del parent[index]
        undo.append(lambda: parent.insert(index, old))
    else:
        parent[index] = new
        undo.append(lambda: parent.__setitem__(index, old))


def _index(token: str, limit: int, path: str) -> int:
    # RFC 6901 §4: digits only, no leading zero. str.isdigit() alone would accept other scripts' digits.
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and token != "0"):
        raise PatchError(f"{path!r} is not in the document: {token!r} is not an array index")
    index = int(token)
    if index >= limit:
        raise PatchError(f"{path!r} is not in the document: the array ends before index {index}")
    return index
