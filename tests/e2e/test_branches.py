"""Fork, rewind, diff, export and import of agents that live on real hosts and mounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .conftest import wait_for_end
from .test_end_to_end import WORKER

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Podium


def test_branches_of_an_agent(podium: Podium, tmp_path: Path) -> None:
    chat = podium.chat(WORKER, "a")
    for text in ("one", "two", "three"):
        assert chat.say(text)[-1]["type"] == "turn_end"
    podium("fork", "worker/a@2", "b")  # while it is awake
    fork = podium.chat(WORKER, "b")
    assert fork.say("four")[-1]["turn"] == 3
    assert chat.say("five")[-1]["turn"] == 4
    assert fork.close() == chat.close() == 0
    wait_for_end(podium.home)
    assert podium("cat", "worker/a", "out.txt").stdout == "4 five\n"
    assert podium("cat", "worker/b", "out.txt").stdout == "3 four\n"
    assert podium("cat", "worker/b", "out.txt@2").stdout == "2 two\n"
    found = podium.json("diff", "worker/a", "worker/b")
    assert "-4 five" in found["diff"]
    assert "+3 four" in found["diff"]
    podium("rewind", "worker/a", "1")
    archive = tmp_path / "a.podium"
    podium("export", "worker/a", str(archive))
    chat = podium.chat(WORKER, "a")
    assert chat.say("six")[-1]["turn"] == 6
    assert chat.close() == 0
    wait_for_end(podium.home)
    assert podium("cat", "worker/a", "out.txt").stdout == "2 six\n"
    versions = {number: podium("cat", "worker/a", f"out.txt@{number}").stdout for number in range(4, 7)}
    assert versions == {4: "4 five\n", 5: "1 one\n", 6: "2 six\n"}
    assert podium("verify").returncode == 0

    podium("import", str(archive), "--as", "worker/c")
    chat = podium.chat(WORKER, "c")
    assert chat.say("seven")[-1]["turn"] == 6
    assert chat.close() == 0
    wait_for_end(podium.home)
    assert podium("cat", "worker/c", "out.txt").stdout == "2 seven\n"
    assert podium("verify").returncode == 0
