"""The patch between two documents whose changes were not tracked: after a migration, between two turns.

Objects are compared by key. Arrays are compared at both ends, where most changes are; items between are compared
pairwise. That is linear, and exact in its effect, though the patch is not always the shortest.
"""

from __future__ import annotations

from chronicle.canonical import Json, encode
from podium.state.patch.apply import Patch, copy_json
from podium.state.pointer import escape

__all__ = ["diff"]


def diff(before: Json, after: Json, path: str = "") -> Patch:
    """Return an RFC 6902 patch from ``before`` to ``after``; empty if they are equal documents.

    Args:
        before: a JSON value.
        after: a JSON value.
        path: RFC 6901 pointer of the two values in the document that the patch applies to.

    Returns:
        operations that share no container with the arguments.
    """
    patch: Patch = []
    _diff(before, after, path, patch)
    return patch


def _diff(before: Json, after: Json, path: str, patch: Patch) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if key not in after:
                patch.append({"op": "remove", "path": f"{path}/{escape(key)}"})
        for key, value in after.items():
            place = f"{path}/{escape(key)}"
            if key in before:
                _diff(before[key], value, place, patch)
            else:
                patch.append({"op": "add", "path": place, "value": copy_json(value)})
    elif isinstance(before, list) and isinstance(after, list):
        _diff_arrays(before, after, path, patch)
    elif not _equal(before, after):
        patch.append({"op": "replace", "path": path, "value": copy_json(after)})


def _diff_arrays(before: list[Json], after: list[Json], path: str, patch: Patch) -> None:
    shorter = min(len(before), len(after))
    head = 0
    while head < shorter and _equal(before[head], after[head]):
        head += 1
    tail = 0
    while tail < shorter - head and _equal(before[-1 - tail], after[-1 - tail]):
        tail += 1
    olds, news = len(before) - head - tail, len(after) - head - tail
    for at in range(head, head + min(olds, news)):
        _diff(before[at], after[at], f"{path}/{at}", patch)
    patch.extend({"op": "remove", "path": f"{path}/{head + news}"} for _ in range(olds - news))
    for at in range(head + olds, head + news):
        patch.append({"op": "add", "path": f"{path}/{at}", "value": copy_json(after[at])})


def _equal(one: Json, other: Json) -> bool:
    """Return whether two values are equal in JSON: in Python True == 1 and 1 == 1.0, in JSON only the latter."""
    if isinstance(one, dict | list) or isinstance(other, dict | list):
        return type(one) is type(other) and one == other and encode(one) == encode(other)
    if type(one) is type(other):
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    return isinstance(one, int | float) and isinstance(other, int | float) and encode(one) == encode(other)
