"""Results: one declaration gives what a client returns, what HTTP answers with, and what is read of an answer."""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, fields
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import TypeAdapter

from coordinator.client import BadAnswer
from coordinator.client.reading import read_answer
from coordinator.operations import objects
from coordinator.operations.model_calls import ModelCall
from coordinator.operations.objects.result import Result, read_result

NAMES: Final[list[str]] = objects.__all__  # type: ignore[attr-defined]  # it is made from those of its modules
KINDS: Final[list[Any]] = [getattr(objects, name) for name in NAMES if name not in {"Page", "Part"}]
PAGES: Final[list[Any]] = [objects.Page[objects.Agent], objects.Page[ModelCall]]


def sample(hint: Any, *, null: bool = False) -> Any:
    """A value of a type; with ``null`` all that may be ``None`` is."""
    origin, of = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return None if null else sample(of[0])
    if origin is Literal:
        return of[0]
    if origin is tuple:
        return (sample(of[0], null=null),)
    if origin is dict:
        return {"key": [1, None, {"more": "text"}]}
    if origin is not None:  # a sequence, or a page
        return [sample(of[0], null=null)] if not issubclass(origin, Result) else filled(origin, null=null)
    if isinstance(hint, type) and issubclass(hint, Result):
        return filled(hint, null=null)
    return {str: "text", int: 7, float: 1.5, bool: True}.get(hint)


def filled(kind: Any, *, null: bool = False) -> Any:
    hints = get_type_hints(get_origin(kind) or kind)
    if kind in PAGES:
        return objects.Page(items=[filled(get_args(kind)[0], null=null)], remaining=3)
    return kind(**{field.name: sample(hints[field.name], null=null) for field in fields(kind)})


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, *PAGES], ids=str)
def test_a_result_is_written_as_http_does_and_read_again(kind: Any, null: bool) -> None:
    result = filled(kind, null=null)
    wire = json.loads(TypeAdapter(kind).dump_json(result, by_alias=True))
    assert json.loads(json.dumps(result.as_json())) == wire
    assert read_result(kind, wire) == result
    assert read_result(kind, {**wire, "of_a_newer_version": 1}) == result


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_answer_without_a_key_says_which(kind: Any) -> None:
    wire = filled(kind).as_json()
    for field in fields(kind):
        key = field.metadata.get("alias", field.name)
        if field.default is MISSING and wire[key] is not None:
            with pytest.raises(BadAnswer, match=f"{kind.__name__}: {key}: field required"):
                read_answer(kind, {name: value for name, value in wire.items() if name != key})


def test_keys_that_only_some_have_are_left_out_and_keywords_are_renamed() -> None:
    version = objects.FileVersion(iteration=1, timestamp=2, size=3, hash="h", op="write", turn=4)
    assert not {"mode", "source"} & version.as_json().keys()
    forked = objects.Forked(agent="a/b", turn=1, version=2, source=objects.ForkPoint(agent="a/a", turn=1, seq=2))
    assert forked.as_json()["from"] == {"agent": "a/a", "turn": 1, "seq": 2}


def test_a_text_of_a_newer_version_is_read() -> None:
    agent = {**filled(objects.Agent).as_json(), "status": "resting"}
    assert read_answer(objects.Agent, agent).status == "resting"
