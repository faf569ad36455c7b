"""Composing patches: several turns as one change.

There is no document at hand, so a path alone does not tell an array's index from an object's key. What is merged is
therefore only what means the same either way; the rest stays one after the other. The result is exact in its effect,
and as short as that allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from podium.state.patch.apply import apply_patch, copy_json
from podium.state.pointer import join, parse

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject
    from podium.state.patch.apply import Patch

__all__ = ["compose"]

_LOOK_BACK: Final = 256
"""Operations looked at to find one to merge with; more would make composing long patches quadratic."""


def compose(first: Sequence[Mapping[str, Json]], second: Sequence[Mapping[str, Json]]) -> Patch:
    """Return one patch with the effect of two, as draining gives them.

    Composing is associative in effect: ``compose(compose(a, b), c)`` and ``compose(a, compose(b, c))`` lead from the
    same document to the same document.

    Args:
        first: operations (add, replace, remove) as `podium.state.tracked.drain` gives them: an ``add`` to an object is
        of a key
            that was not there.
        second: operations for the document that ``first`` leads to.

    Returns:
        a new patch, which shares nothing with the arguments.
    """
    done: list[_Step] = []
    for operation in [*first, *second]:
        _put(done, _Step(operation))
    return [step.operation for step in done]


class _Step:
    """An operation with its path taken apart."""

    __slots__ = ("operation", "tokens")

    def __init__(self, operation: Mapping[str, Json]) -> None:
        self.operation: JsonObject = {key: copy_json(value) for key, value in operation.items()}
        self.tokens = parse(str(operation["path"]))

    @property
    def verb(self) -> Json:
        return self.operation["op"]


class _Relation(Enum):
    """What an earlier operation is to a later one."""

    APART = auto()  # either may come first
    SAME = auto()  # of the same place
    ABOVE = auto()  # of a place that the later one's is in
    BELOW = auto()  # of a place in the later one's
    ENTANGLED = auto()  # one may move what the other names


def _put(done: list[_Step], step: _Step) -> None:
    """Put an operation behind others, merging it with one of them if that is sure to be the same."""
    at = len(done) - 1
    end = max(-1, at - _LOOK_BACK)
    while at > end:
        earlier = done[at]
        relation = _relation(earlier, step)
        if relation is _Relation.ENTANGLED:
            break
        if relation is _Relation.BELOW:
            del done[at]  # what it did is overwritten or removed
        elif relation is _Relation.ABOVE:
            inner = {**step.operation, "path": join(step.tokens[len(earlier.tokens) :])}
            earlier.operation["value"] = apply_patch(earlier.operation["value"], [inner])
            return
        elif relation is _Relation.SAME:
            if _merge(done, at, step):
                return
            break
        at -= 1
    done.append(step)


def _merge(done: list[_Step], at: int, step: _Step) -> bool:
    """Make one of two operations of the same place; return whether the later one needs nothing more."""
    earlier = done[at]
    pair = (earlier.verb, step.verb)
    if pair in (("add", "replace"), ("replace", "replace")):
        earlier.operation["value"] = step.operation["value"]
        return True
    if pair == ("add", "remove"):
        del done[at]
        return True
    if pair == ("replace", "remove"):
        del done[at]
        _put(done, step)
        return True
    if pair == ("remove", "add"):
        earlier.operation = {"op": "replace", "path": step.operation["path"], "value": step.operation["value"]}
        return True
    return False


def _relation(earlier: _Step, later: _Step) -> _Relation:
    one, other = earlier.tokens, later.tokens
    depth = 0
    while depth < len(one) and depth < len(other) and one[depth] == other[depth]:
        depth += 1
    if depth == len(one) == len(other):
        return _Relation.SAME
    if depth == len(one):
        # Below something that was removed stands what moved up into its place.
        return _Relation.ENTANGLED if earlier.verb == "remove" else _Relation.ABOVE
    if depth == len(other):
        return _Relation.ENTANGLED if later.verb == "add" else _Relation.BELOW
    if _is_index(one[depth]) and _is_index(other[depth]) and (_moves(earlier, depth) or _moves(later, depth)):
        return _Relation.ENTANGLED
    return _Relation.APART


def _moves(step: _Step, depth: int) -> bool:
    """Return whether an operation would move its neighbours, if the container at ``depth`` is an array."""
    return step.verb != "replace" and len(step.tokens) == depth + 1


def _is_index(token: str) -> bool:
    return token == "-" or (token.isascii() and token.isdigit())
