"""Loading a user's class: what is refused, and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.agent.inspect import inspect_agent
from podium.agent.loader import load_agent_class, parse_spec
from podium.errors import AgentClassNotFound, AgentFileBroken, AgentFileNotFound, AgentLoadError, NotAnAgent

HEAD = """
from podium.agent import BaseAgent
from podium.agent.models.delta_state import DeltaState


class Good(BaseAgent):
    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx, message):
        pass
"""


@pytest.mark.parametrize(
    ("source", "kind", "says"),
    [
        ("def x(:\n", AgentFileBroken, r"syntax error in .*, line 1"),
        ("import no_such_module\n", AgentFileBroken, r"line 1 raised ModuleNotFoundError"),
        ("raise SystemExit(3)\n", AgentFileBroken, r"line 1 raised SystemExit"),
        (HEAD, AgentClassNotFound, r"no class Agent in .*; its agents are Good"),
        ("x = 1\n", AgentClassNotFound, r"it has no agent at all"),
        ("class Agent:\n    pass\n", NotAnAgent, r"inherit from podium\.agent\.BaseAgent"),
        (HEAD + "class Agent(BaseAgent):\n    pass\n", NotAnAgent, r"class Agent .* has no on_message"),
        (HEAD + "class Agent(Good):\n    def on_message(self, ctx, m): ...\n", NotAnAgent, r"on_message is not async"),
        (HEAD + "class Agent(Good):\n    def on_init(self, ctx): ...\n", NotAnAgent, r"on_init is not async"),
        (HEAD + "class Agent(Good):\n    State = dict\n", NotAnAgent, r"State is not a DeltaState"),
        (HEAD + "class Agent(Good):\n    idle_timeout_s = 0\n", NotAnAgent, r"idle_timeout_s is 0; give a positive"),
        (HEAD + "class Agent(Good):\n    agent_type = 'a b'\n", NotAnAgent, r"agent type 'a b'"),
        (HEAD + "class Agent(Good):\n    def __init__(self, x): ...\n", NotAnAgent, r"made without arguments"),
        (
            HEAD + "class Agent(Good):\n    class State(DeltaState):\n        x: int\n",
            NotAnAgent,
            r"field x: it has no default",
        ),
        (
            HEAD + "class Agent(Good):\n    class State(DeltaState):\n        x: int = 'one'\n",
            NotAnAgent,
            r"field x: Input should be a valid integer",
        ),
        (
            HEAD + "class Agent(Good):\n    class State(DeltaState):\n        x: float = float('nan')\n",
            NotAnAgent,
            r"x",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(
    tmp_path: Path, source: str, kind: type[AgentLoadError], says: str
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(source)
    with pytest.raises(kind, match=says):
        inspect_agent(f"{file}:Agent")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("agent.py", "write FILE.py:Class"),
        ("agent.py:not-a-name", "write FILE.py:Class"),
        ("no_such.py:Agent", "no file no_such.py"),
    ],
)
def test_a_spec_that_names_nothing(spec: str, says: str) -> None:
    with pytest.raises(AgentFileNotFound, match=says):
        parse_spec(spec)


def test_what_an_import_prints_or_breaks_stays_in_its_process(tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text("import os, sys\nprint('hello')\nWORKSPACE = os.environ['AGENT_WORKSPACE']\n" + HEAD)
    info = inspect_agent(f"{file}:Good")
    assert (info.agent_type, info.class_name, info.schema_version) == ("good", "Good", 1)
    file.write_text("import os\nos._exit(7)\n")
    with pytest.raises(AgentFileBroken, match="exit code 7"):
        inspect_agent(f"{file}:Good")


def test_siblings_and_forward_references_resolve(tmp_path: Path) -> None:
    (tmp_path / "helper_of_agent.py").write_text("ANSWER = 42\n")
    file = tmp_path / "uses_helper.py"
    file.write_text(
        "from __future__ import annotations\nfrom helper_of_agent import ANSWER\n"
        + HEAD
        + "class Agent(Good):\n    class State(DeltaState):\n        answer: Answer = ANSWER\n\nAnswer = int\n"
    )
    cls = load_agent_class(file, "Agent")
    assert cls.State.model_fields["answer"].default == 42
