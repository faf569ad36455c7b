"""The typed messages of agents in the OpenAPI document: what a gateway adds of the classes that its service knows.

A type with handlers gets a path of its own for its messages, with their schemas. It is the path of all types with the
type written out, which OpenAPI gives precedence, so a generated client has one function for it, with typed messages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from podium.agent.handlers import HANDLER, INPUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coordinator.operations.objects import AgentClass

__all__ = ["with_typed_messages"]

_PATH: Final = "/v1/agents/{type}/{key}/messages"
_READ: Final = "/v1/agents/{type}/{key}/read"
_DEFINED: Final = "#/$defs/"
_SHAPES: Final = "#/components/schemas/"
_BODIES: Final = {"Answer": "MessageBody", "ReadResult": "ReadBody"}
"""By the shape of an answer: that of the body that is sent for it."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")
"""Characters that names of shapes may not have (OpenAPI 3.1, Components Object)."""


def with_typed_messages(document: Mapping[str, Any], types: Iterable[AgentClass]) -> dict[str, Any]:
    """Return the document of the gateway with the typed messages of some classes; the given one stays as it is.

    The shapes of a type ``T`` are ``T.MessageBody`` and ``T.Answer``, those of its read-only handlers ``T.ReadBody``
    and ``T.ReadResult``, for each handler ``T.NAME.Message``, and the models ``T.MODEL``. A model that differs between
    two handlers is ``T.NAME.input.MODEL`` of one of them.
    """
    paths, shapes = dict(document["paths"]), dict(document["components"]["schemas"])
    for each in types:
        for path, answer, read in ((_PATH, "Answer", False), (_READ, "ReadResult", True)):
            called = {
                name: schemas for name, schemas in each.handlers.items() if bool(schemas.get("read_only")) == read
            }
            if called:
                any_object = each.on_message and not read
                shapes |= _shapes(each.agent_type, called, shapes, answer, any_object=any_object)
                operation = _operation(each.agent_type, paths[path]["post"], answer)
                paths[path.replace("{type}", each.agent_type)] = {"post": operation}
    return {**document, "paths": paths, "components": {**document["components"], "schemas": shapes}}


def _operation(agent_type: str, general: Mapping[str, Any], answer: str) -> dict[str, Any]:
    """Return the operation that sends a message to an agent of a type, or reads it."""
    answered = general["responses"]["200"]
    content = {**answered["content"], "application/json": {"schema": _named(f"{agent_type}.{answer}")}}
    body = _BODIES[answer]
    return {
        **general,
        "operationId": f"{general['operationId']}_of_{agent_type}",
        "parameters": [each for each in general["parameters"] if each["name"] != "type"],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _named(f"{agent_type}.{body}")}},
        },
        "responses": {**general["responses"], "200": {**answered, "content": content}},
    }


def _shapes(
    agent_type: str, handlers: Mapping[str, Any], general: Mapping[str, Any], answer: str, *, any_object: bool
) -> dict[str, Any]:
    """Return the shapes of messages to handlers of a type, and of their answers, by name; with those that are there.

    Args:
        any_object: whether other objects are messages, too.
    """
    shapes: dict[str, Any] = {name: shape for name, shape in general.items() if name.startswith(f"{agent_type}.")}
    messages, results, has_none = {}, [], any_object
    for handler, schemas in handlers.items():
        takes = _take(shapes, agent_type, f"{handler}.{INPUT}", schemas["input"])
        name = f"{agent_type}.{handler}.Message"
        messages[handler] = _SHAPES + name
        shapes[name] = {
            "type": "object",
            "required": [HANDLER, INPUT],
            "properties": {HANDLER: {"const": handler, "type": "string"}, INPUT: takes},
            "additionalProperties": False,
        }
        if schemas["result"] is None:
            has_none = True
        else:
            result = _take(shapes, agent_type, f"{handler}.result", schemas["result"])
            results += [result] if result not in results else []
    typed = {
        "oneOf": [{"$ref": reference} for reference in messages.values()],
        "discriminator": {"propertyName": HANDLER, "mapping": messages},
    }
    untyped = {"type": "object", "not": {"required": [HANDLER]}, "additionalProperties": True}
    data = {} if any_object else {"anyOf": [*results, *([{"type": "null"}] if has_none else [])]}
    for name, field, schema in (
        (_BODIES[answer], "message", {"anyOf": [typed, untyped]} if any_object else typed),
        (answer, "data", {**data, "description": "The result of the handler; null without one."}),
    ):
        properties = {**general[name]["properties"], field: schema}
        shapes[f"{agent_type}.{name}"] = {**general[name], "title": name, "properties": properties}
    return shapes


def _take(shapes: dict[str, Any], agent_type: str, place: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Add the models of a schema to shapes, and return the schema as it refers to them."""
    models = {_DEFINED + name: model for name, model in schema.get("$defs", {}).items()}
    root = {key: value for key, value in schema.items() if key != "$defs"}
    if root.get("type") == "object" and "title" in root:
        models.setdefault(reference := f"{_DEFINED}{root['title']}", root)
        if models[reference] is root:
            root = {"$ref": reference}
    for prefix in (agent_type, f"{agent_type}.{place}"):
        names = {at: f"{prefix}.{_NOT_IN_NAMES.sub('_', at.removeprefix(_DEFINED))}" for at in models}
        references = {at: _SHAPES + name for at, name in names.items()}
        found = {names[at]: _referring(model, references) for at, model in models.items()}
        if all(shapes.get(name, model) == model for name, model in found.items()):
            break  # else another handler has a model of that name
    shapes |= found
    return cast("dict[str, Any]", _referring(root, references))


def _referring(schema: Any, references: Mapping[str, str]) -> Any:
    """Return a schema with other references."""
    if isinstance(schema, list):
        return [_referring(each, references) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _referring(value, references) for key, value in schema.items()}
    match schema:
        case {"$ref": str(reference)}:
            found["$ref"] = references.get(reference, reference)
        case {"discriminator": {"mapping": {**mapping}}}:
            mapped = {tag: references.get(str(reference), reference) for tag, reference in mapping.items()}
            found["discriminator"] = {**schema["discriminator"], "mapping": mapped}
    return found


def _named(name: str) -> dict[str, str]:
    return {"$ref": _SHAPES + name}
