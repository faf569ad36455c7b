"""Sets in arguments: their JSON is the same in each process, or a further attempt would seem another program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ARGUMENTS = """
from dataclasses import dataclass
from typing import Any
from pydantic import BaseModel, Field, RootModel, field_serializer
from podium import BaseAgent, handler
from podium.agent.handler_specs import handlers_of
from podium.history.step_record import args_hash
from podium.state.plain_json import plain_json
from podium.turn.steps.calling import StepCall

TAGS = frozenset({"alpha", "beta", "gamma", "delta", "epsilon"})

class Tag(BaseModel, frozen=True):
    name: str

class Names(RootModel[frozenset[str]]):
    pass

@dataclass
class Plain:
    tags: frozenset[str]

class Query(BaseModel, extra="allow"):
    tags: frozenset[str] = Field(TAGS, alias="labels")
    nested: frozenset[frozenset[str]] = frozenset({TAGS, frozenset({"x", "y", "z"}), frozenset({"v", "w"})})
    models: frozenset[Tag] = frozenset(Tag(name=name) for name in TAGS)
    by_name: dict[str, set[str]] = {"one": set(TAGS)}
    pairs: list[tuple[int, frozenset[str]]] = [(1, TAGS)]
    names: Names = Names(TAGS)
    plain: Plain = Plain(TAGS)
    order: list[str] = ["b", "a"]
    counted: set[str] = set(TAGS)

    @field_serializer("counted")
    def count(self, counted: set[str]) -> int:
        return len(counted)

class Agent(BaseAgent):
    @handler
    async def find(self, ctx: Any, query: Query) -> None: ...

query = Query(more=set(TAGS))
"""
STEP = "print(plain_json(StepCall('a', print, (query,)).as_json()))"
HANDLER = "print(handlers_of(Agent)['find'].message(query))"


@pytest.mark.parametrize("asked", [STEP, HANDLER])
def test_sets_have_the_same_order_in_each_process(asked: str) -> None:
    def shown(seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", ARGUMENTS + asked],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout

    first = shown("1")
    assert first == shown("2")
    assert "['alpha', 'beta', 'delta', 'epsilon', 'gamma']" in first
    assert "'order': ['b', 'a']" in first
    assert "'counted': 5" in first
