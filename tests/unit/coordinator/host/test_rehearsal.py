"""What a warm host does before it gets an agent."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from coordinator.host import rehearsal

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_nothing_is_left_of_a_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workspace = os.environ.get("AGENT_WORKSPACE")
    done: list[str] = []
    rehearse_in = rehearsal._rehearse_in

    async def watched(directory: Path) -> None:
        await rehearse_in(directory)
        done.extend(sorted(path.name for path in directory.iterdir()))

    monkeypatch.setattr(rehearsal, "_rehearse_in", watched)
    await rehearsal.rehearse()
    assert {"blobs", "files", "journal.db", "layers"} <= set(done), "it did not come to its end"
    assert list(tmp_path.iterdir()) == []
    assert os.environ.get("AGENT_WORKSPACE") == workspace


async def test_a_rehearsal_that_fails_is_logged_and_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Path) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(rehearsal, "_rehearse_in", fail)
    with caplog.at_level(logging.CRITICAL):
        await rehearsal.rehearse()
    assert "the disk is full" in caplog.text + capsys.readouterr().out
