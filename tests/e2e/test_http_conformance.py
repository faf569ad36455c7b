"""A real gateway over a home with real Ray answers as its OpenAPI document says, whatever it is sent.

schemathesis makes requests from the document, fitting and not, with all of its checks: no status of the server's own
failure, none that is not documented, no body or header that does not fit its schema.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from .conftest import TIMEOUT_S, fresh_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.ray]

AGENT = """
from typing import Any
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState


class Notes(BaseAgent):
    agent_type = "notes"

    class State(DeltaState):
        _entity_type = "notes"
        _version = 1
        count: int = 0

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        (ctx.workspace / "notes.txt").write_text(f"{ctx.state.count}")
        if ctx.state.count == 1:
            await ctx.add_artifact("first.txt", "one")
        ctx.reply({"count": ctx.state.count})
        await ctx.send_message(str(ctx.state.count))
"""

HOOKS = '''
"""What the document cannot say of requests that fit it: which keys and cursors there are."""

import schemathesis

KEYS = ("a", "b", "nobody")


def _number(value):
    return sum(map(ord, str(value)))


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Name agents that there are, mostly; leave keys that are no keys to the unit tests."""
    if path_parameters and "key" in path_parameters:
        path_parameters["key"] = KEYS[_number(path_parameters["key"]) % len(KEYS)]
        if _number(path_parameters["type"]) % 4:
            path_parameters["type"] = "notes"
    if path_parameters and "path" in path_parameters and _number(path_parameters["path"]) % 2:
        path_parameters["path"] = "notes.txt"
    return path_parameters


@schemathesis.hook
def before_call(context, case, **kwargs):
    """Leave out cursors of requests that are to be accepted: a list gives them out, and refuses others."""
    if case.meta.generation.mode.is_positive and case.query:
        case.query.pop("cursor", None)


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict) and isinstance(body.get("key"), str):
        body["key"] = "fork-" + str(_number(body["key"]) % 50)
    return body
'''

CONFIG = """
hooks = "hooks.py"

[checks]
# An agent that does not exist, or a turn; a message for an agent whose condition does not permit it.
positive_data_acceptance.expected-statuses = ["2xx", 304, 206, 404, 409, 416]
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The URL of a gateway with two agents."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes_agent.py").write_text(AGENT)
    (project / "podium.toml").write_text('agents = ["notes_agent.py:Notes"]\n')
    with fresh_home({}) as podium:
        up = podium("up", "--project", str(project / "podium.toml"), "--detach", "--no-auth", "--port", "0", "--json")
        url: str = json.loads(up.stdout)["url"]
        try:
            for key in ("a", "b"):
                message = {"message": {"text": "hello"}}
                sent = httpx.post(f"{url}/v1/agents/notes/{key}/messages", json=message, timeout=TIMEOUT_S)
                assert sent.json()["text"] == "1", sent.text
            yield url
        finally:
            podium("down")


def test_a_gateway_answers_as_its_document_says(served: str, tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text(HOOKS)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{served}/openapi.json"]
    options = ["--checks", "all", "--phases", "coverage,fuzzing", "--max-examples", "5", "--max-time", "60"]
    run = subprocess.run(
        [*command, *options, "--continue-on-failure", "--request-timeout", "60", "--warnings", "off"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S * 4,
        check=False,
    )
    assert run.returncode == 0, run.stdout
