"""Artifacts through the whole chain: a host that is killed, a mount, and what the command gives back."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.agents.handing import PICTURE_BYTES
from tests.e2e.conftest import AGENTS, TIMEOUT_S, command

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium

HANDING = f"{AGENTS / 'handing.py'}:Handing"
NAMES = ["note.md", "picture.png", "draft.png"]


def content(podium: Podium, artifact_id: str) -> bytes:
    """What ``podium artifact`` prints."""
    arguments = [*command(), "artifact", artifact_id, "--home", str(podium.home)]
    done = subprocess.run(arguments, env=podium.environment, capture_output=True, check=True, timeout=TIMEOUT_S)
    return done.stdout


def test_a_turn_that_is_killed_and_handled_again_hands_out_once(served: Podium, tmp_path: Path) -> None:
    text = f"hang until {tmp_path / 'gate'}"
    chat = served.chat(HANDING, "a")
    chat.send(text)
    first = chat.until("message_update")
    lost = [frame["artifact_id"] for frame in first if frame["type"] == "artifact"]
    assert len(lost) == len(NAMES)
    os.kill(int(first[-1]["delta"]), signal.SIGKILL)
    (tmp_path / "gate").touch()
    frames = chat.until("turn_end", "error")
    assert frames[-1]["type"] == "turn_end"
    told = [frame for frame in frames if frame["type"] == "artifact"]
    made = served.json("artifacts", "handing/a")
    assert [each["name"] for each in made] == NAMES
    assert [frame["artifact_id"] for frame in told] == [each["artifact_id"] for each in made]
    assert [each["turn"] for each in made] == [1, 1, 1]
    note, picture, draft = (content(served, each["artifact_id"]) for each in made)
    assert note == f"# {text}".encode()
    assert picture == random.Random(text).randbytes(PICTURE_BYTES)
    assert draft == b"first draft"
    assert served.json("state", "handing/a")["state"] == {"made": [made[1]["artifact_id"]]}
    for artifact_id in lost:
        assert served("artifact", artifact_id, check=False).returncode == 24
    said = served("run", HANDING, "--key", "b", "--message", "hello").stderr
    for each in served.json("artifacts", "handing/b"):
        assert (
            f"[{each['name']}] {each['media_type']}, {each['size']} bytes: podium artifact {each['artifact_id']}"
            in said
        )
    assert chat.close() == 0
    assert served("verify").returncode == 0
