"""The public names of the packages: each imports at its first use, costs nothing before, and is in the reference."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import podium.agent
from podium.agent.models import delta_state

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference" / "python.md"
LAZY = [
    "chronicle",
    "podium",
    "podium.agent",
    "podium.models",
    "podium.runs",
    "podium.tools",
    "coordinator",
    "coordinator.client",
]
OTHERS = ["podium.state", "podium.testing", "podium.testing.migrations", "chronicle.repository", "coordinator.testing"]
PUBLIC = [*LAZY, *OTHERS]
HEAVY = ["ray", "pyfuse3", "sqlite3", "psycopg", "fsspec", "rich", "structlog", "httpx"]


def _imported(statement: str, modules: list[str]) -> list[str]:
    """Return which of some modules are imported after a statement, in a process of its own."""
    code = f"import sys; {statement}; print(*[m for m in {modules!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    return found.stdout.split()


@pytest.mark.parametrize("name", LAZY)
def test_each_public_name_is_its_modules_own(name: str) -> None:
    package = importlib.import_module(name)
    assert set(package.__all__) <= set(dir(package))
    others = getattr(package, "_OTHERS", ())
    of_others = {public: other for other in others for public in importlib.import_module(other).__all__}
    modules = {**of_others, **package._MODULES}
    assert set(package.__all__) == set(modules)
    for public, module in modules.items():
        assert getattr(package, public) is getattr(importlib.import_module(module), public)
        assert not public.startswith("_")


@pytest.mark.parametrize("name", LAZY)
def test_no_other_name_is_there(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"module '{re.escape(name)}' has no attribute 'Nothing'"):
        importlib.import_module(name).Nothing  # noqa: B018


@pytest.mark.parametrize("name", LAZY)
def test_a_package_alone_imports_none_of_what_its_names_need(name: str) -> None:
    heavy = [*HEAVY, "pydantic", "typing_extensions", "asyncio", "jsonpatch"]
    assert _imported(f"import {name}", heavy) == []


@pytest.mark.parametrize("name", ["podium", "podium.agent"])
def test_no_name_for_agents_needs_ray_fuse_a_database_or_what_formats_logs(name: str) -> None:
    assert _imported(f"from {name} import *", [*HEAVY, "jsonpatch"]) == []


def test_no_name_of_the_client_needs_ray_fuse_a_database_or_a_web_framework() -> None:
    heavy = ["ray", "pyfuse3", "sqlite3", "psycopg", "fsspec", "fastapi", "starlette", "uvicorn"]
    assert _imported("from coordinator.client import *; AsyncPodium(url='http://x')", heavy) == []


def test_the_agents_package_has_what_an_author_needs_and_podium_has_it_too() -> None:
    assert podium.agent.DeltaState is delta_state.DeltaState
    assert set(podium.agent.__all__) == {
        "AgentContext",
        "Answer",
        "AnswerEvent",
        "AnswerPart",
        "AnswerText",
        "AnswerVoided",
        "Answered",
        "AskFailed",
        "AskRefused",
        "AskTimeout",
        "DecisionExpired",
        "BaseAgent",
        "DeltaState",
        "ErrorInfo",
        "ModelAgent",
        "Permanent",
        "Reminder",
        "Retention",
        "Retry",
        "ScheduledReminder",
        "handler",
        "migration",
    }
    assert set(podium.agent.__all__) <= set(podium.__all__)


def test_the_reference_has_every_public_name_once_and_no_other() -> None:
    pages = re.split(r"^## `([\w.]+)`$", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    listed = {
        package: re.findall(r"^\| `(\w+)` \| \S", text, re.MULTILINE)
        for package, text in zip(pages[::2], pages[1::2], strict=True)
    }
    for package in PUBLIC:
        assert sorted(listed.pop(package)) == sorted(importlib.import_module(package).__all__), package
    assert listed == {}


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_import_public_names_only(example: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(example.read_text())) if isinstance(node, ast.ImportFrom)]
    modules = {node.module or "" for node in imports}
    own = {module for module in modules if module.partition(".")[0] in {"chronicle", "podium", "coordinator"}}
    assert own <= {*PUBLIC, "podium.agent.models.delta_state"}
