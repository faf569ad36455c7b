"""The client's table: each row is a route of the gateway, and an operation of a home, with the same result."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from fastapi.routing import APIRoute

import coordinator.client
from coordinator.access.caller import OpenAccess
from coordinator.gateway.app import create_app
from coordinator.home import Home
from coordinator.operations import objects
from coordinator.operations.agents import HomeAgents
from coordinator.streams.home_streams import HomeStreams

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = Path(coordinator.client.__file__ or "").parent


class Row(NamedTuple):
    method: str
    path: str
    operation: str
    result: str


def rows() -> Iterator[Row]:
    """The rows in the client's code."""
    for file in CLIENT.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name("Request"),
                    args=[
                        ast.Constant(method),
                        ast.Constant(path),
                        ast.Constant(operation),
                        ast.Lambda(body=result),
                        *_,
                    ],
                ):
                    yield Row(str(method), str(path), str(operation), ast.unparse(result))


ROWS = sorted(set(rows()))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """The result of each route, by its method and path."""
    home = Home(tmp_path_factory.mktemp("table") / "home").create()

    class NoLink:
        async def client(self) -> Any:
            raise NotImplementedError

    agents = HomeAgents(home, NoLink())
    app = create_app(agents, OpenAccess(), HomeStreams(NoLink().client, agents))
    agents.close()
    found: dict[tuple[str, str], Any] = {}
    for route in app.routes:
        if isinstance(route, APIRoute):
            path = re.sub(r":\w+\}", "}", route.path)
            found |= {(method, path): route.response_model for method in route.methods or ()}
    return found


def test_there_are_rows() -> None:
    assert len(ROWS) > 25


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
def test_a_row_is_a_route_and_an_operation_with_its_result(row: Row, results: dict[tuple[str, str], Any]) -> None:
    kind = eval(row.result, {"objects": objects})
    root = "/v1" if row.path.startswith("/") else "/v1/agents/{type}/{key}/"
    assert results[row.method, (root + row.path).rstrip("/")] == kind
    module, _, name = row.operation.rpartition(".")
    owner: Any = import_module(f"coordinator.operations.{module}") if module else HomeAgents
    assert getattr(owner, name).__annotations__["return"] == row.result
