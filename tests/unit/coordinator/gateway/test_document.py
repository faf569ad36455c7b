"""The OpenAPI document says what the server takes: texts that fit the schemas of an operation are not refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from coordinator.gateway.patterns import ADDRESS, KEY
from podium.address import Address
from podium.errors import InvalidAddress
from tests.unit.coordinator.gateway.every_route import FOREIGN, tenants_of_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.coordinator.gateway.every_route import Route

TEXTS: Final = ("\x00", "\x01", "a\nb", " ", "a b", " a", "..", "a..b", ".", "a/b", "é", "a\u200bb", "a", "x" * 128)
ONLY_GIVEN_OUT: Final = "cursor"
"""The document says that other texts of these characters are refused."""
FRONT_ENDS: Final = frozenset({"id", "threadId", "runId", "parentRunId", "messageId", "protocolVersion"})
"""Names of front ends: which of them is the key of an agent depends on the route."""


def fits(schema: dict[str, Any], text: str) -> bool:
    if "anyOf" in schema and not any(fits(each, text) for each in schema["anyOf"]):
        return False
    return (
        schema.get("type", "string") == "string"
        and ("enum" not in schema or text in schema["enum"])
        and ("const" not in schema or text == schema["const"])
        and schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))
        and re.search(schema.get("pattern", ""), text) is not None
    )


def parameters(operation: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the place, the name and the schema of each text in a path or query."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] in {"path", "query"} and parameter["name"] not in {"type", ONLY_GIVEN_OUT}:
            yield parameter["in"], parameter["name"], parameter["schema"]


def fields(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the schema of each field of a body that has a pattern."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = body.get("$ref", "").rpartition("/")[2]
    for field, schema in document["components"]["schemas"].get(name, {}).get("properties", {}).items():
        if "pattern" in schema and field not in FRONT_ENDS:
            yield field, schema


def url_with(route: Route, name: str, text: str, ids: dict[str, str]) -> str:
    """Return the URL of a route with a text in its path."""
    quoted = quote(text, safe="")
    if name == "key":
        return route.at(f"notes/{quoted}", ids)
    return route.at(f"notes/{FOREIGN}", {**ids, name: quoted, "stored_artifact_id": quoted})


async def test_texts_that_fit_the_document_are_not_refused(tmp_path: Path) -> None:
    sent = 0
    async with tenants_of_home(tmp_path) as tenants:
        document, headers = tenants.home.app.openapi(), tenants.headers("default")
        agent, ids = f"notes/{FOREIGN}", tenants.ids
        for route in tenants.routes():
            operation = document["paths"][route.path][route.method.lower()]
            if route.name in {"import_agent", "deploy_code"}:  # their bodies are files
                continue
            requests: list[tuple[str, dict[str, str], str, dict[str, str]]] = [
                (url_with(route, name, text, ids) if place == "path" else route.at(agent, ids), {name: text}, place, {})
                for place, name, schema in parameters(operation)
                for text in TEXTS
                if fits(schema, text)
            ] + [
                (route.at(agent, ids), {}, "body", {name: text})
                for name, schema in fields(document, operation)
                for text in TEXTS
                if fits(schema, text)
            ]
            for url, named, place, more in requests:
                body = {**(route.body(agent, ids) or {}), **more} if more else route.body(agent, ids)
                answer = await tenants.home.http.request(
                    route.method, url, params=named if place == "query" else None, json=body, headers=headers
                )
                assert answer.status_code != 400, (route, named, more, answer.text)
                assert answer.status_code < 500, (route, named, more, answer.text)
                sent += 1
    assert sent > 200


assigned = st.text(st.characters(exclude_categories=["Cs", "Cn"], max_codepoint=0xFFFF), min_size=1, max_size=128)
tricky = st.lists(st.sampled_from([".", "..", " ", "/", "a", "é", "\n", "\u200b", "\ufeff", "\u3000"]), max_size=4)


@given(st.one_of(assigned, tricky.map("".join)))
def test_the_pattern_of_keys_is_that_of_the_server(key: str) -> None:
    try:
        Address("notes", key)
    except InvalidAddress:
        usable = False
    else:
        usable = True
    assert (re.search(KEY, key) is not None and len(key) <= 128 and not key.endswith("\n")) == usable
    assert (re.search(ADDRESS, f"acme:notes/{key}") is not None and not key.endswith("\n")) == usable
