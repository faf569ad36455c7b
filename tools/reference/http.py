"""The page of the HTTP interface, from the application's OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coordinator.gateway.app import create_app
from tools.reference.markdown import code, document, from_docstring, table

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["page"]

_METHODS: Final = ("get", "head", "post", "put", "delete")


def page() -> str:
    """Return the page."""
    found = _openapi()
    return document(
        "HTTP reference",
        "Every route of the gateway. A running gateway gives the same as an "
        'OpenAPI document at `/openapi.json`. Every error is `{"error": {"message", "type", "code", "param"}}`.',
        *(part for path, methods in found["paths"].items() for part in _path(path, methods)),
        "## Shapes",
        *(part for name, schema in found["components"]["schemas"].items() for part in _shape(name, schema)),
    )


def _openapi() -> dict[str, Any]:
    unused: Any = None  # a route would need them, its description does not
    return create_app(unused, unused, unused).openapi()


def _path(path: str, methods: dict[str, Any]) -> Iterator[str]:
    for method in _METHODS:
        if operation := methods.get(method):
            yield f"## {method.upper()} {path}"
            yield operation.get("summary", "") if not operation.get("description") else ""
            yield from_docstring(operation.get("description"))
            yield table(("parameter", "in", "type", "meaning"), map(_parameter, operation.get("parameters", ())))
            body = operation.get("requestBody", {}).get("content", {})
            for media_type, content in body.items():
                yield f"Body: {_type(content.get('schema', {}))} as `{media_type}`."
            yield table(("status", "answer"), (_answer(*item) for item in operation["responses"].items()))


def _parameter(parameter: dict[str, Any]) -> tuple[str, str, str, str]:
    name = code(parameter["name"]) + ("" if parameter.get("required") else "?")
    return name, parameter["in"], _type(parameter["schema"]), from_docstring(parameter.get("description"))


def _answer(status: str, answer: dict[str, Any]) -> tuple[str, str]:
    kinds = {
        f"{_type(content['schema'])} as `{media_type}`" if content.get("schema") else code(media_type)
        for media_type, content in answer.get("content", {}).items()
    }
    text = from_docstring(answer.get("description"))
    return status, ": ".join([text, " or ".join(sorted(kinds))]) if kinds and status < "300" else text


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield from_docstring(schema.get("description"))
    required = schema.get("required", ())
    rows = (
        (code(key) + ("" if key in required else "?"), _type(value), from_docstring(value.get("description")))
        for key, value in schema.get("properties", {}).items()
    )
    yield table(("key", "type", "meaning"), rows)
    if "enum" in schema:
        yield f"One of {_type(schema)}."


def _type(schema: dict[str, Any]) -> str:
    """Return a schema as a short type; a named shape as a link to it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return code(str(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(_type(one) for one in schema[key])
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    kind = schema.get("type", "any JSON")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
