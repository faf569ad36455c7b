"""The client's results have the keys and the JSON types of the objects that a home answers with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import TypeAdapter

from coordinator.client import results
from coordinator.operations import objects

if TYPE_CHECKING:
    from coordinator.client.results import Result

OTHER_NAMES: Final = {
    "DifferenceSide": "DiffSide",
    "MessageError": "ErrorObject",
    "TranscriptDifference": "DiffTranscript",
}
RESULTS: Final = [name for name in results.__all__ if name not in {"Result", "read_result"}]


def object_name(result: str) -> str:
    """The name of the object that a result is read from; that of an object is its own."""
    found = OTHER_NAMES.get(result, f"{result}Object")
    return found if found in objects.__all__ else result


def types_of(schema: dict[str, Any]) -> set[str]:
    """The JSON types of a value; of an object with a name, that name. Which texts are allowed is not compared."""
    if "$ref" in schema:
        return {object_name(schema["$ref"].rpartition("/")[2])}
    if "anyOf" in schema:
        return set().union(*(types_of(part) for part in schema["anyOf"]))
    if schema.get("type") == "array":
        return {f"list of {' or '.join(sorted(types_of(schema['items'])))}"}
    return {schema.get("type", "anything")}


def keys_of(schema: dict[str, Any], if_absent: frozenset[str] = frozenset()) -> dict[str, set[str]]:
    """The types of an object's keys, and further ones of those that may be absent."""
    return {
        key: types_of(part) | (set() if key in schema["required"] else if_absent)
        for key, part in schema["properties"].items()
    }


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_has_the_keys_and_types_of_its_object(name: str) -> None:
    kind: type[Result] = getattr(results, name)
    wire = TypeAdapter(getattr(objects, object_name(name))).json_schema()
    assert keys_of(kind.model_json_schema()) == keys_of(wire, frozenset({"null"}))
