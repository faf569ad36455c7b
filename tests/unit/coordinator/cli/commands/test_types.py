"""`podium types`: what the types of a project take, for people and for programs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from coordinator.testing import ScriptedResponse, ScriptedServer

PODIUM = Path(sys.executable).with_name("podium")

CODE = """
from typing import Annotated, Literal
from pydantic import BaseModel, Field
from podium import BaseAgent, handler

class Query(BaseModel):
    text: str

class Added(BaseModel):
    kind: Literal["added"]

class Removed(BaseModel):
    kind: Literal["removed"]

class Searcher(BaseAgent):
    @handler
    async def search(self, ctx, query: Query) -> list[Query]: ...

    @handler
    async def change(self, ctx, change: Annotated[Added | Removed, Field(discriminator="kind")]) -> None: ...

    @handler
    async def count(self, ctx, query: Query) -> int: ...

class Talker(BaseAgent):
    async def on_message(self, ctx, message): ...
"""


def said(directory: Path, *options: str) -> str:
    command = [str(PODIUM), "types", *options]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, timeout=120).stdout


def test_the_types_of_a_project_and_their_schemas(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(CODE)
    (tmp_path / "podium.toml").write_text('agents = ["agents.py:Searcher", "agents.py:Talker"]\n')
    assert [line.split(maxsplit=2) for line in said(tmp_path).splitlines()] == [
        ["TYPE", "CLASS", "MESSAGE                  RESULT"],
        ["searcher", "agents.py:Searcher", "change: Added | Removed"],
        ["searcher", "agents.py:Searcher", "count: Query             integer"],
        ["searcher", "agents.py:Searcher", "search: Query            list of Query"],
        ["talker", "agents.py:Talker", "any JSON object"],
    ]
    searcher, talker = json.loads(said(tmp_path, "--json"))["types"]
    assert talker == {"type": "talker", "class": "agents.py:Talker", "on_message": True, "handlers": {}}
    assert (searcher["type"], searcher["on_message"]) == ("searcher", False)
    assert searcher["handlers"]["search"]["input"]["required"] == ["text"]
    assert searcher["handlers"]["search"]["result"]["items"] == {"$ref": "#/$defs/Query"}
    assert searcher["handlers"]["change"]["result"] is None


async def test_the_types_of_a_server_are_shown_without_a_project(tmp_path: Path) -> None:
    search = {"input": {"title": "Query", "type": "object"}, "result": None}
    types = [{"type": "searcher", "class": "a.py:S", "on_message": False, "handlers": {"search": search}}]
    async with ScriptedServer(lambda _: ScriptedResponse.json({"items": types})) as server:
        listed = await asyncio.to_thread(said, tmp_path, "--url", server.url)
        described = await asyncio.to_thread(said, tmp_path, "--url", server.url, "--json")
        assert {request.target for request in server.requests} == {"/v1/types"}
    assert [line.split(maxsplit=2) for line in listed.splitlines()][1:] == [["searcher", "a.py:S", "search: Query"]]
    assert json.loads(described) == {"types": types}
