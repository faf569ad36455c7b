"""An agent's class is inspected once for as long as a service runs and its sources stay as they are."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator.cli import inspection_cache
from coordinator.cli.inspection_cache import inspect_once
from coordinator.home import Home
from podium.agent.inspect import AgentInfo, inspect_agent
from podium.errors import AgentClassNotFound, AgentFileBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

AGENT = """
from podium.agent import BaseAgent


class One(BaseAgent):
    async def on_message(self, ctx, message):
        pass


class Two(One):
    pass
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home whose service has its directory, as while it runs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = Home(tmp_path / "home")
    home.make_run_dir()
    yield home
    home.remove_run_dir()


@pytest.fixture
def inspections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The specs that were really inspection_cache."""
    specs: list[str] = []

    def inspect(spec: str) -> AgentInfo:
        specs.append(spec)
        return inspect_agent(spec)

    monkeypatch.setattr(inspection_cache, "inspect_agent", inspect)
    return specs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return path


def test_a_class_is_inspected_once(home: Home, inspections: list[str], file: Path) -> None:
    first = inspect_once(home, f"{file}:One")
    assert inspect_once(home, f"{file}:One") == first == inspect_agent(f"{file}:One")
    assert inspections == [f"{file}:One"]
    assert inspect_once(home, f"{file}:Two").agent_type == "two"
    assert inspections == [f"{file}:One", f"{file}:Two"]


def test_a_change_of_the_file_or_of_one_beside_it_is_inspected(home: Home, inspections: list[str], file: Path) -> None:
    inspect_once(home, f"{file}:One")
    file.write_text(AGENT.replace("class One(BaseAgent):", "class One(BaseAgent):\n    agent_type = 'other'"))
    assert inspect_once(home, f"{file}:One").agent_type == "other"
    (file.parent / "beside.py").touch()
    inspect_once(home, f"{file}:One")
    assert len(inspections) == 3
    file.write_text("def x(:\n")
    with pytest.raises(AgentFileBroken):
        inspect_once(home, f"{file}:One")


def test_what_cannot_be_used_is_inspected_again(home: Home, inspections: list[str], file: Path) -> None:
    for _ in range(2):
        with pytest.raises(AgentClassNotFound):
            inspect_once(home, f"{file}:Three")
    assert len(inspections) == 2


def test_another_working_directory_is_another_inspection(
    home: Home, inspections: list[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect_once(home, f"{file}:One")
    (file.parent / "elsewhere").mkdir()
    monkeypatch.chdir(file.parent / "elsewhere")
    inspect_once(home, f"{file}:One")
    assert len(inspections) == 2


def test_nothing_is_kept_while_no_service_runs(home: Home, inspections: list[str], file: Path) -> None:
    home.remove_run_dir()
    for _ in range(2):
        inspect_once(home, f"{file}:One")
    assert len(inspections) == 2
    assert not home.path.exists()


def test_a_record_that_cannot_be_read_is_replaced(home: Home, inspections: list[str], file: Path) -> None:
    inspect_once(home, f"{file}:One")
    (kept,) = (home.run_dir / "inspected").iterdir()
    for damaged in ("", "[]", '{"file": "x"}', '{"file": '):
        kept.write_text(damaged)
        assert inspect_once(home, f"{file}:One").agent_type == "one"
    assert len(inspections) == 5
    inspect_once(home, f"{file}:One")
    assert len(inspections) == 5
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
