"""``podium new``: a project whose test passes, and the names and directories that it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.registry.project import load_project
from coordinator.registry.resolve import resolve
from coordinator.registry.template import ProjectName, project_files

FILES = [".gitignore", "README.md", "agent.py", "podium.toml", "pyproject.toml", "tests/test_agent.py"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files_of(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_project_is_made_and_its_test_passes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "my-bot"]) == ExitCode.OK
    shown = capsys.readouterr()
    assert shown.out.split() == [f"my-bot/{file}" for file in FILES]
    assert "cd my-bot && podium run agent.py:MyBot" in shown.err
    project = place / "my-bot"
    assert files_of(project) == FILES
    assert names_in(place) == ["my-bot"]
    umask = os.umask(0)
    os.umask(umask)
    assert project.stat().st_mode & 0o777 == 0o777 & ~umask
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error"],
        cwd=project,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # a user has none of ours
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert "2 passed" in tests.stdout
    registry = resolve(load_project(project / "podium.toml"))
    assert [(agent.agent_type, agent.class_name, agent.config) for agent in registry.agents] == [
        ("my_bot", "MyBot", {"greeting": "Hello"})
    ]


def test_an_empty_directory_is_filled(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "bot").mkdir()
    assert main(["new", "bot", "--json"]) == ExitCode.OK
    made = json.loads(capsys.readouterr().out)
    assert made == {"project": str(place / "bot"), "agent_type": "bot", "files": FILES}
    assert files_of(place / "bot") == FILES


def test_what_exists_is_not_touched(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "full").mkdir()
    (place / "full" / "notes.txt").write_text("mine")
    (place / "file").write_text("mine")
    (place / "link").symlink_to("full")
    for name, why in (("full", "is not empty"), ("file", "is no directory"), ("link", "is no directory")):
        assert main(["new", name]) == ExitCode.USAGE
        assert f"{name} exists and {why}; take another name" in capsys.readouterr().err
    assert names_in(place) == ["file", "full", "link"]
    assert names_in(place / "full") == ["notes.txt"]


@pytest.mark.parametrize("name", ["", "1bot", "-bot", "my bot", "a/b", "..", "bot.py", "ä", "a--b", "a_", "x" * 65])
def test_a_name_that_cannot_be_used_is_refused(place: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["new", "--", name]) == ExitCode.USAGE
    assert "cannot be the name of a project: take 1 to 64 letters" in capsys.readouterr().err
    assert names_in(place) == []


@pytest.mark.parametrize("name", ["none", "true", "base-agent", "delta_state", "path"])
def test_a_name_whose_class_has_another_meaning_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["new", name]) == ExitCode.USAGE
    assert f"take another name, such as {name}-agent" in capsys.readouterr().err
    assert names_in(place) == []


def test_a_failed_write_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: ProjectName) -> dict[str, str]:
        return {**project_files(name), "agent.py/below": "a file is no directory"}

    monkeypatch.setattr("coordinator.registry.template.project_files", fail)
    assert main(["new", "bot"]) == ExitCode.OS_ERROR
    assert names_in(place) == []


@pytest.mark.parametrize(
    ("name", "class_name", "agent_type"),
    [("bot", "Bot", "bot"), ("my-Bot2", "MyBot2", "my_bot2"), ("support_desk", "SupportDesk", "support_desk")],
)
def test_names_of_the_agent_follow_from_the_project(name: str, class_name: str, agent_type: str) -> None:
    found = ProjectName(name)
    assert (found.class_name, found.agent_type) == (class_name, agent_type)
    compile(project_files(found)["agent.py"], "agent.py", "exec")


def test_commands_use_the_home_of_the_project(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["new", "bot"])
    os.chdir(place / "bot" / "tests")
    capsys.readouterr()
    assert main(["ps"]) == ExitCode.HOME_ERROR
    assert str(place / "bot" / ".podium") in capsys.readouterr().err
    os.chdir(place / "bot")
    assert main(["ps"]) == ExitCode.HOME_ERROR
    assert str(place / "bot" / ".podium") in capsys.readouterr().err
    with (place / "bot" / "podium.toml").open("a") as file:
        file.write('[settings]\nhome = "data"\n')
    assert main(["ps"]) == ExitCode.HOME_ERROR
    assert str(place / "bot" / "data") in capsys.readouterr().err
    assert main(["ps", "--home", "given"]) == ExitCode.HOME_ERROR
    assert str(place / "bot" / "given") in capsys.readouterr().err
