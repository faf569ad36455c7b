"""Patches on documents, without a state: applying, comparing, following; each against the jsonpatch library."""

from __future__ import annotations

import copy
from typing import Any, cast

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.canonical import Json, JsonObject, encode
from podium.state import Patch, PatchError, apply_patch, diff, follow
from podium.state.pointer import escape, join, parse

KEYS = ["a", "b", "0", "1", "-", "a/b", "~", "~1", ""]
keys = st.sampled_from(KEYS)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "x", 1.0, 0.5, 2**70]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)
objects = st.dictionaries(keys, values, max_size=4)


@given(before=objects, after=objects)
def test_diff_leads_from_one_to_the_other(before: JsonObject, after: JsonObject) -> None:
    patch = diff(before, after)
    assert (patch == []) == (encode(before) == encode(after))
    assert encode(jsonpatch.apply_patch(before, patch)) == encode(after)
    assert encode(apply_patch(copy.deepcopy(before), patch)) == encode(after)


def test_diff_is_short_where_most_changes_are() -> None:
    before: Json = {"deep": {"a": {"b": [1, 2, 3]}}, "gone": 1, "flag": True}
    after: Json = {"deep": {"a": {"b": [1, 9, 3]}}, "flag": 1}
    assert diff(before, after) == [
        {"op": "remove", "path": "/gone"},
        {"op": "replace", "path": "/deep/a/b/1", "value": 9},
        {"op": "replace", "path": "/flag", "value": 1},
    ]
    assert diff([1, 2, 3], [1, 3]) == [{"op": "remove", "path": "/1"}]
    assert diff([1, 3], [1, 2, 3]) == [{"op": "add", "path": "/1", "value": 2}]
    assert diff({"a": 1}, {"a": 1.0}) == []
    assert diff({"a": True}, {"a": 1}) == [{"op": "replace", "path": "/a", "value": 1}]
    assert diff({"a": [True]}, {"a": [1]}) == [{"op": "replace", "path": "/a/0", "value": 1}]
    assert diff(1, [1]) == [{"op": "replace", "path": "", "value": [1]}]


def places(document: Json, path: str = "") -> list[tuple[str, Json]]:
    """All places of a document, its whole excepted."""
    if isinstance(document, dict):
        inner = [(f"{path}/{escape(key)}", value) for key, value in document.items()]
    elif isinstance(document, list):
        inner = [(f"{path}/{index}", value) for index, value in enumerate(document)]
    else:
        return []
    return inner + [place for below, value in inner for place in places(value, below)]


@st.composite
def walks(draw: st.DrawFn, steps: int = 6) -> tuple[JsonObject, list[Patch]]:
    """A document, and patches of one operation each, as draining would give them."""
    document: Any = draw(objects)
    first = copy.deepcopy(document)
    patches: list[Patch] = []
    for _ in range(draw(st.integers(0, steps))):
        spots = places(document)
        containers = [("", document), *((path, value) for path, value in spots if isinstance(value, dict | list))]
        verb = draw(st.sampled_from(["add", "replace", "remove"] if spots else ["add"]))
        operation: JsonObject = {"op": verb}
        if verb == "add":
            path, container = draw(st.sampled_from(containers))
            if isinstance(container, dict):
                new = draw(st.sampled_from([key for key in (*KEYS, "free") if key not in container] or ["more"]))
                operation["path"] = f"{path}/{escape(new)}"
            else:
                operation["path"] = f"{path}/{draw(st.integers(0, len(cast('list[Json]', container))))}"
        else:
            operation["path"] = draw(st.sampled_from(spots))[0]
        if verb != "remove":
            operation["value"] = draw(values)
        patches.append([operation])
        document = apply_patch(document, [operation])
    return first, patches


@given(walks())
def test_apply_agrees_with_the_library(walk: tuple[JsonObject, list[Patch]]) -> None:
    document, patches = walk
    ours: Any = copy.deepcopy(document)
    theirs: Any = document
    for patch in patches:
        ours = apply_patch(ours, patch)
        theirs = jsonpatch.apply_patch(theirs, patch)
        assert encode(ours) == encode(theirs)


@given(walks())
def test_a_client_follows_a_state_by_its_patches(walk: tuple[JsonObject, list[Patch]]) -> None:
    document, patches = walk
    before, given_patches = copy.deepcopy((document, patches))
    last = apply_patch(copy.deepcopy(document), [step for patch in patches for step in patch])
    assert encode(follow(document, patches)) == encode(last)
    assert encode(follow(follow(document, patches[:1]), patches[1:])) == encode(last)
    assert (document, patches) == (before, given_patches)


def test_a_patch_of_another_turn_is_refused_and_changes_nothing() -> None:
    document: JsonObject = {"items": ["a"]}
    first: Patch = [{"op": "add", "path": "/items/1", "value": "b"}]
    for other in ([{"op": "replace", "path": "/items/3", "value": "x"}], [{"op": "remove", "path": "/name"}]):
        with pytest.raises(PatchError, match="read the state anew"):
            follow(document, [first, cast("Patch", other)])
    assert document == {"items": ["a"]}
    assert first == [{"op": "add", "path": "/items/1", "value": "b"}]


def test_apply_is_in_place_and_copies_values() -> None:
    inner: list[Json] = [1]
    document: Json = {"a": {"b": inner}}
    value: list[Json] = [2]
    assert apply_patch(document, [{"op": "add", "path": "/a/c", "value": value}]) is document
    value.append(3)
    assert document == {"a": {"b": [1], "c": [2]}}
    assert cast("Any", document)["a"]["b"] is inner
    assert apply_patch(document, [{"op": "replace", "path": "", "value": {"x": 1}}]) == {"x": 1}


WRONG: list[tuple[Any, str]] = [
    ({"op": "move", "from": "/a", "path": "/b"}, "not an add, replace or remove"),
    ({"op": "add", "value": 1}, "not an add, replace or remove"),
    ({"op": "add", "path": "/a"}, "has no value"),
    ({"op": "remove", "path": ""}, "whole document cannot be removed"),
    ({"op": "remove", "path": "a"}, "is not a JSON pointer"),
    ({"op": "remove", "path": "/~2"}, "'~' must be followed by 0 or 1"),
    ({"op": "remove", "path": "/zz"}, "cannot be removed"),
    ({"op": "replace", "path": "/zz", "value": 1}, "cannot be replaced"),
    ({"op": "add", "path": "/zz/a", "value": 1}, "no key 'zz'"),
    ({"op": "add", "path": "/text/a", "value": 1}, "neither an object nor an array"),
    ({"op": "add", "path": "/text/a/b", "value": 1}, "neither an object nor an array"),
    ({"op": "add", "path": "/list/4", "value": 1}, "the array ends before index 4"),
    ({"op": "replace", "path": "/list/3", "value": 1}, "the array ends before index 3"),
    ({"op": "remove", "path": "/list/-"}, "'-' is not an array index"),
    ({"op": "add", "path": "/list/01", "value": 1}, "'01' is not an array index"),
    ({"op": "add", "path": "/list/x", "value": 1}, "'x' is not an array index"),
    ({"op": "add", "path": "/list/\u0663", "value": 1}, "is not an array index"),
    ({"op": "add", "path": "/list/9/a", "value": 1}, "the array ends before index 9"),
]


@pytest.mark.parametrize(("operation", "message"), WRONG, ids=range(len(WRONG)))
def test_a_patch_that_does_not_fit_changes_nothing(operation: Any, message: str) -> None:
    document: Any = {"text": "x", "list": [1, 2, 3], "inner": {"a": 1}}
    before = copy.deepcopy(document)
    steps: Patch = [
        {"op": "add", "path": "/new", "value": 1},
        {"op": "add", "path": "/list/0", "value": 0},
        {"op": "remove", "path": "/list/3"},
        {"op": "replace", "path": "/inner/a", "value": 5},
        {"op": "remove", "path": "/inner"},
        {"op": "replace", "path": "/list/0", "value": 7},
        {"op": "add", "path": "/list/-", "value": 8},
        {"op": "remove", "path": "/list/0"},
    ]
    with pytest.raises(PatchError) as caught:
        apply_patch(document, [*steps, operation])
    assert message in str(caught.value)
    assert document == before


def test_pointers() -> None:
    assert join(["a/b", "~", 3, ""]) == "/a~1b/~0/3/"
    assert parse("/a~1b/~0/3/") == ["a/b", "~", "3", ""]
    assert parse("") == []
    assert parse("/") == [""]
    assert parse("/~01") == ["~1"]
