"""Loading a user's class: what is refused, and how it is said."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from chronicle.errors import InvalidInput
from podium.agent.inspect import inspect_agent
from podium.agent.loader import load_agent_class
from podium.agent.spec import parse_spec
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
        (HEAD + "class Agent(Good):\n    State = dict\n", NotAnAgent, r"State is not a DeltaState"),
        (HEAD + "class Agent(Good):\n    idle_timeout_s = 0\n", NotAnAgent, r"idle_timeout_s is 0; give a positive"),
        (HEAD + "class Agent(Good):\n    agent_type = 'a b'\n", NotAnAgent, r"agent type 'a b'"),
        (HEAD + "class Agent(Good):\n    retention = 30\n", NotAnAgent, r"retention is 30; give a Retention, such as"),
        (
            HEAD + "class Agent(Good):\n    resources = {'GPU': True}\n",
            NotAnAgent,
            r"a dict of positive numbers, such as",
        ),
        (HEAD + "class Agent(Good):\n    resources = {'CPU': 1, 'num_cpus': 1}\n", NotAnAgent, r"the same; remove one"),
        (
            HEAD + "class Agent(Good):\n    sandbox = True\n",
            NotAnAgent,
            r"sandbox is True; write 'bubblewrap', or a Policy",
        ),
        (HEAD + "class Agent(Good):\n    sandbox = 'docker'\n", NotAnAgent, r"no sandbox 'docker'; there are none, "),
        (
            HEAD + "from pathlib import Path\nfrom podium.sandbox.policy import Policy\n"
            "class Agent(Good):\n    sandbox = Policy(writable=(Path('/srv'),))\n",
            NotAnAgent,
            r"its sandbox has writable paths; a command writes to its workspace",
        ),
        (HEAD + "class Agent(Good):\n    labels = {'zone': 1}\n", NotAnAgent, r"labels are .*; give a dict of strings"),
        (HEAD + "class Agent(Good):\n    def __init__(self, x): ...\n", NotAnAgent, r"made without arguments"),
        (
            HEAD + "class Agent(Good):\n    def __init__(self): raise KeyError('API_KEY')\n",
            NotAnAgent,
            r"its __init__ raised KeyError: 'API_KEY'",
        ),
        (
            HEAD
            + "from pydantic import Field\ndef made(): raise KeyError('API_KEY')\n"
            + "class Agent(Good):\n    class State(DeltaState):\n        x: int = Field(default_factory=made)\n",
            NotAnAgent,
            r"making its State raised KeyError: 'API_KEY'",
        ),
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


DECORATORS = """
import functools


def blocking(hook):
    @functools.wraps(hook)
    def wrapper(*args):
        return hook(*args)

    return wrapper


def with_user(hook):
    @functools.wraps(hook)
    async def wrapper(self, ctx, message):
        return await hook(self, ctx, message, "user")

    return wrapper
"""


@pytest.mark.parametrize(
    ("hook", "says"),
    [
        (
            "def on_message(self, ctx, message): ...",
            r"is not async; write 'async def on_message\(self, ctx, message\)'",
        ),
        ("def on_init(self, ctx): ...", r"is not async; write 'async def on_init\(self, ctx\)'"),
        ("on_idle_timeout = lambda self, ctx: True", r"is not async; write 'async def on_idle_timeout\(self, ctx\)'"),
        ("@blocking\n    async def on_shutdown(self, ctx): ...", r"is not async; write"),
        (
            "async def on_message(self, m): ...",
            r"too many positional arguments\); write 'async def on_message\(self, ctx",
        ),
        ("async def on_message(self): ...", r"too many positional arguments"),
        ("async def on_message(self, ctx, message, more): ...", r"missing a required argument: 'more'"),
        ("async def on_message(self, ctx, message, *, more): ...", r"missing a required .*argument: 'more'"),
        ("async def on_message(self, *, ctx, message): ...", r"too many positional arguments"),
        ("async def on_init(self): ...", r"write 'async def on_init\(self, ctx\)'"),
        ("async def on_idle_timeout(self, ctx, message): ...", r"missing a required argument: 'message'"),
        ("async def on_shutdown(self): ...", r"write 'async def on_shutdown\(self, ctx\)'"),
        ("@staticmethod\n    async def on_message(self, ctx, message): ...", r"missing a required argument: 'message'"),
        ("async def on_message(self, ctx, message):\n        yield 1", r"has a yield, so it is a generator"),
    ],
)
def test_a_hook_that_could_not_be_called_is_refused_with_its_place_and_how_to_write_it(
    tmp_path: Path, hook: str, says: str
) -> None:
    file = tmp_path / "agent.py"
    file.write_text(f"{HEAD}{DECORATORS}\n\nclass Agent(Good):\n    {hook}\n")
    line = (HEAD + DECORATORS).count("\n") + 4
    if "blocking" in hook:
        line = file.read_text()[: file.read_text().index("def wrapper")].count("\n")  # of its own decorator
    with pytest.raises(NotAnAgent, match=says) as caught:
        load_agent_class(file, "Agent")
    assert f"({file}:{line})" in str(caught.value)


@pytest.mark.parametrize("hook", ["def on_init(self, ctx): ...", "async def on_init(self): ..."])
def test_a_hook_that_is_inherited_is_looked_at_where_it_is_written(tmp_path: Path, hook: str) -> None:
    (tmp_path / "mixins_of_agent.py").write_text(f"class Mixin:\n    {hook}\n")
    file = tmp_path / "agent.py"
    file.write_text(f"{HEAD}from mixins_of_agent import Mixin\n\nclass Agent(Mixin, Good): ...\n")
    with pytest.raises(NotAnAgent, match=r"on_init \(.*mixins_of_agent\.py:2\)"):
        inspect_agent(f"{file}:Agent")


@pytest.mark.parametrize(
    "hook",
    [
        "async def on_message(self, context, m): ...",
        "async def on_message(self, *args): ...",
        "async def on_message(self, ctx, message, more=None, **others): ...",
        "async def on_message(self, ctx, message, /): ...",
        "@staticmethod\n    async def on_message(ctx, message): ...",
        "@classmethod\n    async def on_message(cls, ctx, message): ...",
        "@with_user\n    async def on_message(self, ctx, message, user): ...",
    ],
)
def test_a_hook_may_be_written_in_any_way_that_can_be_called(tmp_path: Path, hook: str) -> None:
    file = tmp_path / "agent.py"
    file.write_text(f"{HEAD}{DECORATORS}\n\nclass Agent(Good):\n    {hook}\n")
    assert load_agent_class(file, "Agent").__name__ == "Agent"


@pytest.mark.parametrize(
    ("spec", "kind", "says"),
    [
        ("agent.py", InvalidInput, "write FILE.py:Class"),
        ("agent.py:not-a-name", InvalidInput, "write FILE.py:Class"),
        ("no_such.py:Agent", AgentFileNotFound, "no file no_such.py"),
    ],
)
def test_a_spec_that_names_nothing(spec: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
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


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose agent imports from the package, as the working directory."""
    package = tmp_path / "shop_of_tests" / "agents"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package.parent / "prices.py").write_text("PRICE = 7\n")
    (package / "__init__.py").write_text("from ..prices import PRICE\n")
    (package / "sibling.py").write_text("NAME = 'sold'\n")
    agent = "\n\nclass Agent(Good):\n    price = PRICE\n    name = NAME\n"
    (package / "seller.py").write_text("from . import PRICE\nfrom .sibling import NAME\n" + HEAD + agent)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("spec", ["shop_of_tests.agents.seller:Agent", "shop_of_tests/agents/seller.py:Agent"])
def test_an_agent_of_a_package_imports_from_it(project: Path, spec: str) -> None:
    info = inspect_agent(spec)
    assert info.file == str(project / "shop_of_tests" / "agents" / "seller.py")


def test_a_module_of_a_package_has_its_name_there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    cls = load_agent_class(project / "shop_of_tests" / "agents" / "seller.py", "Agent")
    assert cls.__module__ == "shop_of_tests.agents.seller"
    assert (vars(cls)["price"], vars(cls)["name"]) == (7, "sold")


def test_an_error_in_the_package_of_an_agent_names_its_line(project: Path) -> None:
    (project / "shop_of_tests" / "__init__.py").write_text("\nimport no_such_module\n")
    with pytest.raises(AgentFileBroken, match=r"__init__\.py, line 2 raised ModuleNotFoundError"):
        inspect_agent("shop_of_tests.agents.seller:Agent")


def test_a_relative_import_without_a_package_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "lone.py").write_text("from .other import x\n")
    with pytest.raises(AgentFileBroken, match=r"line 1 .*relative import.*__init__\.py"):
        inspect_agent(f"{tmp_path / 'lone.py'}:Agent")


@pytest.mark.parametrize(
    "module", ["no_such_module", "shop_of_tests.none", "shop_of_tests.none.deeper", "json.none", "sys"]
)
def test_a_module_that_is_not_there(project: Path, module: str) -> None:
    with pytest.raises(AgentFileNotFound, match=f"no module {module} in .* give the path of its file, such as"):
        parse_spec(f"{module}:Agent")


def test_a_module_that_is_a_package_is_its_init(project: Path) -> None:
    path, _ = parse_spec("shop_of_tests.agents:Agent")
    assert path == project / "shop_of_tests" / "agents" / "__init__.py"


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("PLACE = os.environ['AGENT_WORKSPACE']", "line 3"),
        ("PLACE = os.environ.get('AGENT_WORKSPACE')", "line 3"),
        ("PLACE = os.getenv('AGENT_WORKSPACE', '/tmp')", "line 3"),
        ("HAS = 'AGENT_WORKSPACE' in os.environ", "line 3"),
        ("COPY = dict(os.environ)", None),
        ("COPY = os.environ.copy() | {**os.environ}", None),
        ("ALL = list(os.environ.items())", None),
        ("ALL = [os.environ.get('HOME'), *os.environ]; COPY = dict(os.environ)", None),
        ("COPY = dict(os.environ); PLACE = os.environ['AGENT_WORKSPACE']", "line 3"),
    ],
)
def test_a_shared_class_does_not_read_the_variable_at_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, where: str | None
) -> None:
    monkeypatch.setenv("AGENT_WORKSPACE", "/somewhere")
    environ = type(os.environ)
    for isolation in ("shared", "process"):
        file = tmp_path / f"{isolation}_agent.py"
        head = HEAD.replace("class Good(BaseAgent):", f"class Good(BaseAgent):\n    isolation = '{isolation}'")
        file.write_text(f"\nimport os\n{line}\n" + head)
        if where is None or isolation == "process":
            load_agent_class(file, "Good")
        else:
            with pytest.raises(NotAnAgent, match=rf"shared_agent.py, {where} reads AGENT_WORKSPACE, .* ctx.workspace"):
                load_agent_class(file, "Good")
        assert type(os.environ) is environ
    assert os.environ["AGENT_WORKSPACE"] == "/somewhere"


def test_a_shared_class_does_not_read_the_variable_as_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_WORKSPACE", "/somewhere")
    file = tmp_path / "made.py"
    made = "    isolation = 'shared'\n    def __init__(self):\n        self.place = os.environ['AGENT_WORKSPACE']\n"
    file.write_text("import os\n" + HEAD + "class Agent(Good):\n" + made)
    with pytest.raises(NotAnAgent, match=r"made.py, line \d+ reads AGENT_WORKSPACE, .* isolation = 'process'"):
        load_agent_class(file, "Agent")
