"""Schemas of answers that are refused, because to check an answer against them would take for ever."""

from __future__ import annotations

from typing import Any

import pytest

from podium.answer_schema import check_answer, check_schema
from podium.errors import DecisionInvalid

LEVELS = 60
"""Each doubles the work."""


def _chain(link: Any, last: Any) -> Any:
    """Return a schema of parts that refer to the next one each."""
    parts = {f"a{number}": link({"$ref": f"#/$defs/a{number + 1}"}) for number in range(LEVELS)}
    return {"$ref": "#/$defs/a0", "$defs": {**parts, f"a{LEVELS}": last}}


ENDLESS = [
    _chain(lambda following: {"allOf": [following, following]}, {"type": "integer"}),
    _chain(lambda following: {"anyOf": [following], "not": {"not": following}}, {"type": "integer"}),
    _chain(lambda following: {"allOf": [following, following]}, {"properties": {"x": {"$ref": "#/$defs/a0"}}}),
    _chain(lambda following: {**following, "unevaluatedProperties": False}, {"type": "object"}),
    {"items": _chain(lambda following: {"allOf": [following, following]}, {"type": "integer"})},
    {"$ref": "#"},
    {"$defs": {"a": {"$anchor": "a"}}, "$ref": "#a"},
    {"$dynamicRef": "#a"},
    {"properties": {"a": {"$id": "http://a.example/"}}},
    {"$ref": "#/$defs/none"},
]


@pytest.mark.parametrize("schema", ENDLESS)
def test_a_schema_that_multiplies_or_goes_round_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(DecisionInvalid, match="the schema of a decision"):
        check_schema(schema)
    with pytest.raises(DecisionInvalid, match="the schema of a decision"):
        check_answer(schema, 1)


def test_one_that_goes_round_through_its_values_is_used() -> None:
    tree = {"type": "object", "properties": {"sons": {"items": {"$ref": "#/$defs/tree"}}}, "required": ["name"]}
    schema: Any = {
        "$ref": "#/$defs/tree",
        "$defs": {"tree": tree, "a/b%": {"anyOf": [{"$ref": "#/$defs/a~1b%25/not"}], "not": True}},
    }
    check_answer(schema, {"name": "a", "sons": [{"name": "b"}]})
    with pytest.raises(DecisionInvalid, match="at /sons/0"):
        check_answer(schema, {"name": "a", "sons": [{}]})
