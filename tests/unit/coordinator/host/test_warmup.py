"""What a warm host does before it gets an agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coordinator.host import warmup

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_nothing_is_left_of_a_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workspace = os.environ.get("AGENT_WORKSPACE")
    done: list[str] = []
    warm_up_in = warmup._warm_up_in

    async def watched(directory: Path) -> None:
        await warm_up_in(directory)
        done.extend(sorted(path.name for path in directory.iterdir()))

    monkeypatch.setattr(warmup, "_warm_up_in", watched)
    await warmup.warm_up()
    assert {"blobs", "files", "journal.db", "layers"} <= set(done), "it did not come to its end"
    assert list(tmp_path.iterdir()) == []
    assert os.environ.get("AGENT_WORKSPACE") == workspace


async def test_a_warm_up_that_fails_is_logged_and_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Path) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(warmup, "_warm_up_in", fail)
    await warmup.warm_up()
    assert "the disk is full" in caplog.text
