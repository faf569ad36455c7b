"""What a command is told that has other surroundings than the service that it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.e2e.conftest import Podium

AGENT = """
import os
from podium.agent import BaseAgent

class Teller(BaseAgent):
    async def on_message(self, ctx, message):
        await ctx.send_message(f"{os.getcwd()} {os.environ.get('CURRENCY')}")
"""


def test_other_surroundings_than_the_services_are_told(
    podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, elsewhere = tmp_path / "teller.py", tmp_path / "elsewhere"
    agent.write_text(AGENT)
    elsewhere.mkdir()
    spec = f"{agent}:Teller"
    podium.environment["CURRENCY"] = "EUR"
    monkeypatch.chdir(tmp_path)
    chat = podium.chat(spec, "a")
    chat.say("hi")

    podium.environment |= {"SHLVL": "7", "TERM": "other", "OLDPWD": "/"}
    same = podium("run", spec, "--message", "hi")
    assert same.stdout == f"{tmp_path} EUR\n"
    assert "surroundings" not in same.stderr

    podium.environment |= {"CURRENCY": "USD", "SHOP_API_KEY": "sk-do-not-show-this"}
    monkeypatch.chdir(elsewhere)
    other = podium("run", spec, "--message", "hi")
    assert other.stdout == f"{tmp_path} EUR\n", "they are still those of the first"
    told = "agents run in the environment of the command that started the home's service: "
    told += (
        f"working directory {tmp_path} (here {elsewhere}); CURRENCY (another value here); SHOP_API_KEY (set here only)."
    )
    assert told in other.stderr
    assert "sk-do-not" not in other.stderr + "".join(
        log.read_text(errors="replace") for log in (podium.home / "logs").iterdir()
    )
    assert chat.close() == 0
