"""Agents' workspaces on real hosts: quotas, and reading them through fsspec while their agent is awake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.filesystem import AgentFileSystem
from tests.e2e.conftest import AGENTS

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium

HOARDER = f"{AGENTS / 'plain.py'}:Hoarder"


def test_an_agent_meets_its_quota_and_its_files_are_read_meanwhile(served: Podium) -> None:
    chat = served.chat(HOARDER, "a")

    def said(text: str) -> str:
        frames = chat.say(text)
        assert frames[-1]["type"] == "turn_end", frames[-1]
        (end,) = [frame for frame in frames if frame["type"] == "message_end"]
        return str(end["text"])

    assert said("one 60000") == "written"
    assert said("two 40001") == "EDQUOT"
    assert said("two 40000") == "written"
    assert said("three 0") == "written"
    assert said("four 0") == "EDQUOT"
    assert said("one 10") == "written"
    files = AgentFileSystem(home=served.home)
    sizes = {path: files.info(path)["size"] for path in files.find("hoarder/a")}
    assert sizes == {"hoarder/a/one": 10, "hoarder/a/three": 0, "hoarder/a/two": 40_000}
    assert files.cat("hoarder/a@1/one") == bytes(60_000)
    assert files.ls("hoarder/a@1", detail=False) == ["hoarder/a@1/one"]
    assert chat.close() == 0
