"""What ``podium run`` refuses before it starts anything: one line, a code of its own, nothing left behind."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from tests.unit.coordinator.cli.cli_home import HomeMaker

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
from podium.agent import BaseAgent

class Good(BaseAgent):
    async def on_message(self, ctx, message):
        pass

class Silent(BaseAgent):
    pass

class NoAgent:
    pass
"""


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    files = {"good.py": GOOD, "syntax.py": "def x(:\n", "broken.py": "import no_such_module_anywhere\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ("none.py:Good", ExitCode.FILE_NOT_FOUND, "no file"),
        ("good.py", ExitCode.USAGE, "write FILE.py:Class"),
        ("good.py:Other", ExitCode.CLASS_NOT_FOUND, "no class Other"),
        ("good.py:NoAgent", ExitCode.NOT_AN_AGENT, "let it inherit from podium.agent.BaseAgent"),
        ("good.py:Silent", ExitCode.NOT_AN_AGENT, "has no on_message"),
        ("syntax.py:Good", ExitCode.FILE_BROKEN, "syntax error in"),
        ("broken.py:Good", ExitCode.FILE_BROKEN, "no_such_module_anywhere"),
    ],
)
def test_a_class_that_cannot_be_used(
    agents: Path, capsys: pytest.CaptureFixture[str], spec: str, code: ExitCode, message: str
) -> None:
    home = agents / "home"
    assert main(["run", str(agents / spec), "--message", "x", "--home", str(home)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert not home.exists()


@pytest.mark.parametrize("key", ["a/b", "..", "a..b", "x" * 129, "", " a", "a\n"])
def test_a_key_that_cannot_be_used(agents: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    arguments = ["run", str(agents / "good.py:Good"), "--key", key, "--home", str(agents / "home")]
    assert main(arguments) == ExitCode.INVALID_ADDRESS
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_traceback_of_the_agent_s_file_comes_with_debug(agents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(agents / "broken.py:Good"), "--debug"]) == ExitCode.FILE_BROKEN
    assert 'broken.py", line 1, in <module>' in capsys.readouterr().err


def test_a_home_that_cannot_be_written(agents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (agents / "home").write_text("a file in the way")
    arguments = ["run", str(agents / "good.py:Good"), "--home", str(agents / "home")]
    assert main(arguments) == ExitCode.HOME_NOT_WRITABLE
    assert "cannot be written" in capsys.readouterr().err


def test_a_home_or_journal_of_a_newer_format(agents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = HomeMaker(agents / "home")
    made.close()
    with sqlite3.connect(made.path / "journal.db") as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        db.execute(f"PRAGMA user_version = {version + 1}")
    db.close()
    arguments = ["run", str(agents / "good.py:Good"), "--message", "x", "--home", str(made.path)]
    assert main(arguments) == ExitCode.HOME_TOO_NEW
    assert "; upgrade podium\n" in capsys.readouterr().err
    (made.path / "format").write_text('{"format": 99}')
    assert main(arguments) == ExitCode.HOME_TOO_NEW
    assert "upgrade podium" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("PODIUM_WARM_HOSTS", "many", "should be a valid integer"),
        ("PODIUM_LEASE_TTL_S", "-1", "should be greater than 0"),
        ("PODIUM_PRESENTATION", "nfs", "should be 'auto', 'fuse' or 'dir'"),
        ("PODIUM_WORKSPACES", "relative", "give an absolute path"),
        ("PODIUM_RUN_DIR", "relative", "give an absolute path"),
        ("PODIUM_RUN_DIR", f"/{'r' * 40}", "give a path of at most 40 bytes"),
    ],
)
def test_a_setting_that_cannot_be_used(
    agents: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    why: str,
) -> None:
    monkeypatch.setenv(name, value)
    arguments = ["run", str(agents / "good.py:Good"), "--message", "x", "--home", str(agents / "home")]
    assert main(arguments) == ExitCode.USAGE
    said = capsys.readouterr().err.strip()
    assert f"{name}={value} cannot be used: " in said
    assert why in said
    assert len(said.splitlines()) == 1
    assert not (agents / "home" / "logs" / "service.log").exists()
