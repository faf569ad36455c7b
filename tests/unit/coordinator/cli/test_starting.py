"""What a command imports before it does anything: a user waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from coordinator.cli.main import COMMANDS, GROUPS, main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_what_a_client_of_a_running_service_imports(tmp_path: Path) -> None:
    """Each of these takes as long to import as the whole exchange with the service."""
    code = """
import sys
from pathlib import Path
from chronicle.cli_kit import progress
from coordinator.cli import chat, inspection_cache, line_input
from coordinator.cli.commands import run
from coordinator.home import Home
from coordinator.service import connecting
Home(Path(sys.argv[1])).create().journal().close()
heavy = ["ray", "pydantic", "pydantic_settings", "structlog", "fsspec", "prompt_toolkit", "rich", "click", "fastcdc"]
print([name for name in heavy if name in sys.modules])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "home")]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=os.environ)
    assert found.stdout.strip() == "[]"


def test_what_the_list_of_commands_imports() -> None:
    """Each of these takes a tenth of the time of ``podium --help`` or more."""
    code = """
import sys
from coordinator.cli.main import main
heavy = ["asyncio", "coordinator.cli.commands", "decimal", "orjson", "pydantic", "ray", "ssl", "structlog"]
sys.argv = ["podium", "--help"]
main()
print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert found.stderr.strip() == "[]"


def test_the_list_of_commands_has_what_their_helps_begin_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, (_, summary) in {**COMMANDS, **GROUPS}.items():
        assert main([name, "--help"]) == 0
        assert summary in " ".join(capsys.readouterr().out.split()), name
        assert f"\n  {name} " in shown
