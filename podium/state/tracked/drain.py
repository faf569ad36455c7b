"""Draining: builds one RFC 6902 patch from the recorded changes of all containers.

The walk follows the changed children from the root. A container's own changes come first, then the patches of children
that were there at the last drain and still are; new children are in their parent's patch as a whole. Each operation
applies to the document that the ones before it produced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from chronicle.canonical import Json, encode
from podium.state.errors import UnseenChange
from podium.state.patch.diff import diff
from podium.state.pointer import escape, join
from podium.state.tracked.dicts import TrackedDict
from podium.state.tracked.lists import TrackedList, index_of
from podium.state.tracked.node import MISSING, Tracked, TrackingNode, path_of
from podium.state.tracked.sets import TrackedSet, set_changes, update_order
from podium.state.tracked.tuples import TrackedTuple

if TYPE_CHECKING:
    from podium.state.patch.apply import Patch
    from podium.state.tracked.models import ModelShape
    from podium.state.tracked.shape import Shape

__all__ = ["check_list", "collect", "mark_drained"]


def collect(root: Tracked) -> Patch:
    """Return the patch since the last drain, without side effects.

    Raises:
        UnseenChange: a changed container does not have as many members as its recorded changes imply.
    """
    patch: Patch = []
    _emit(root, "", patch)
    return patch


def _check_size(owner: TrackedList[Any] | TrackedDict[Any, Any] | TrackedSet[Any], expected: int) -> None:
    if len(owner) != expected:
        raise UnseenChange(join(path_of(owner)), len(owner), expected)


def check_list(owner: TrackedList[Any]) -> None:
    """Compare a list's length with its recorded edits.

    Raises:
        UnseenChange: the patch would not lead to the list's present content.
    """
    node = owner._podium
    pieces = node.pieces
    if pieces is not None and pieces.base != node.size:
        raise UnseenChange(join(path_of(owner)), pieces.base, node.size)
    expected = node.size if pieces is None else len(pieces)
    if expected != len(owner):
        raise UnseenChange(join(path_of(owner)), len(owner), expected)


def mark_drained(owner: Tracked) -> None:
    """Clear the recorded changes of a container and below it: it counts as drained from now on."""
    node = owner._podium
    changed_children = node.changed_children
    if node.pieces is not None:
        node.size = len(cast("TrackedList[Any]", owner))
    elif node.olds and isinstance(owner, TrackedDict):
        node.size = len(owner)
    elif node.olds and isinstance(owner, TrackedSet):
        update_order(owner)
        node.size = len(owner)
    node.olds = node.pieces = node.changed_children = None
    for child in (changed_children or {}).values():
        mark_drained(child)


def _emit(owner: Tracked, path: str, patch: Patch) -> None:
    node = owner._podium
    if isinstance(owner, TrackedList):
        _emit_list(owner, path, patch)
    elif isinstance(owner, TrackedSet):
        _emit_set(owner, path, patch)
    elif isinstance(owner, TrackedDict):
        size = node.size
        for key, old in (node.olds or {}).items():
            shape, now = node.shape.value(key), owner.get(key, MISSING)
            size += (now is not MISSING) - (old is not MISSING)
            _emit_place(shape, old, now, f"{path}/{escape(node.shape.keys.name(key))}", patch)
        _check_size(owner, size)
        _emit_children(owner, path, patch)
    elif isinstance(owner, TrackedTuple):
        _emit_children(owner, path, patch)
    else:
        _emit_model(owner, node, path, patch)


def _emit_model(owner: Any, node: TrackingNode, path: str, patch: Patch) -> None:
    shape: ModelShape = node.shape
    for name, old in (node.olds or {}).items():
        now = owner.__dict__.get(name, MISSING)
        if now is MISSING:
            now = (owner.__pydantic_extra__ or {}).get(name, MISSING)
        _emit_place(shape.slot(name), old, now, path if shape.is_root_model else f"{path}/{escape(name)}", patch)
    _emit_children(owner, path, patch)


def _emit_place(shape: Shape, old: object, now: object, path: str, patch: Patch) -> None:
    """Emit the change of one member of a dict or model."""
    if now is MISSING:
        if old is not MISSING:
            patch.append({"op": "remove", "path": path})
    elif old is MISSING:
        patch.append({"op": "add", "path": path, "value": shape.encode(now)})
    elif now is not old:
        value = shape.encode(now)
        if isinstance(old, Tracked):
            if isinstance(now, Tracked) and not old._podium.changed:
                # A changed copy of the old value, as in ``state.items = [*state.items, x]``: emit the difference only.
                patch.extend(_shorter(diff(shape.encode(old), value, path), value, path))
                return
        elif not isinstance(now, Tracked) and encode(shape.encode(old)) == encode(value):
            return
        patch.append({"op": "replace", "path": path, "value": value})


def _shorter(steps: Patch, value: Json, path: str) -> Patch:
    """Return the given operations, or one that replaces the whole value if that is shorter."""
    whole: Patch = [{"op": "replace", "path": path, "value": value}]
    return whole if len(steps) > 1 and len(encode(steps)) > len(encode(whole)) else steps


def _emit_children(owner: Tracked, path: str, patch: Patch) -> None:
    """Emit the patches of children that kept their key since the last drain."""
    node = owner._podium
    for child in (node.changed_children or {}).values():
        if not node.olds or child._podium.key not in node.olds:
            _emit(child, _place(owner, child, path), patch)


def _place(owner: Tracked, child: Tracked, path: str) -> str:
    tokens = owner._podium.shape.tokens_of(owner, child)
    return f"{path}/{escape(tokens[0])}" if tokens else path


def _emit_list(owner: TrackedList[Any], path: str, patch: Patch) -> None:
    node = owner._podium
    pieces = node.pieces
    item: Shape = node.shape.item
    steps: Patch = []
    check_list(owner)
    if pieces is not None:
        for change in pieces.changes():
            both = min(change.removed, change.inserted)
            for at in range(change.start, change.start + both):
                steps.append({"op": "replace", "path": f"{path}/{at}", "value": item.encode(owner[at])})
            for at in range(change.start + both, change.start + change.inserted):
                steps.append({"op": "add", "path": f"{path}/{at}", "value": item.encode(owner[at])})
            if change.removed > both:
                remove: dict[str, Json] = {"op": "remove", "path": f"{path}/{change.start + both}"}
                steps.extend([remove] * (change.removed - both))
        kept = pieces.kept()
        # The whole list is encoded for comparison only where that costs about as much as the steps.
        if len(steps) > 1 and kept <= len(steps) // 4:
            whole = node.shape.encode(owner)
            if kept == 0 or _shorter(steps, whole, path) is not steps:
                patch.append({"op": "replace", "path": path, "value": whole})
                return
    patch.extend(steps)
    changed_children = list((node.changed_children or {}).values())
    for child in changed_children:
        at = index_of(owner, child, len(changed_children))
        if pieces is None or not pieces.is_new(at):
            _emit(child, f"{path}/{at}", patch)


def _emit_set(owner: TrackedSet[Any], path: str, patch: Patch) -> None:
    changes = set_changes(owner)
    _check_size(owner, owner._podium.size + sum(1 if verb == "add" else -1 for verb, _, _ in changes))
    if len(changes) > len(owner) + 1:
        patch.append({"op": "replace", "path": path, "value": owner._podium.shape.encode(owner)})
        return
    for verb, at, value in changes:
        operation: dict[str, Json] = {"op": verb, "path": f"{path}/{at}"}
        if verb == "add":
            operation["value"] = value
        patch.append(operation)
