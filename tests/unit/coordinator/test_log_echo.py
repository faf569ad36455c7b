"""Logs of a home's processes, copied to the standard error of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.log_echo import echoed
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_what_is_appended_is_copied_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, seen = tmp_path / "service.log", ""

    def append(text: str) -> None:
        with log.open("a") as file:
            file.write(text)

    def copied(line: str) -> bool:
        nonlocal seen
        seen += capsys.readouterr().err
        return f"service: {line}\n" in seen

    append("from before\n")
    (tmp_path / "0123abcd.log").write_text("")
    with echoed(tmp_path):
        append("one\ntw")
        wait_until(lambda: copied("one"), "the line is not copied")
        append("o\n")
        wait_until(lambda: copied("two"), "the line is not completed")
        log.write_text("new\n")  # as by a rotation, which truncates
        wait_until(lambda: copied("new"), "what follows a rotation is not copied")
        (tmp_path / "0123abcd.log").write_text("of an agent\n")
        (tmp_path / "store.log").write_text("x" * 200_000 + "\n")  # did not exist before
        append("last\n")
    assert copied("last"), "what is there at the end is not copied"
    assert seen.count("x") == 200_000
    assert "from before" not in seen
    assert "of an agent" not in seen
    assert "service: tw\n" not in seen
