"""Agents that get processes of their own: durable, until their code is edited."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from coordinator.documents import FileDocuments
from coordinator.fleet.code.code_stamp import CodeStamps
from coordinator.fleet.deaths.quarantine import Quarantine
from coordinator.fleet.model import Code, Loaded
from podium.address import Address

if TYPE_CHECKING:
    from pathlib import Path

ALICE, BOB = Address("hello", "alice", "acme"), Address("hello", "bob")


@pytest.fixture
def code(tmp_path: Path) -> Code:
    file = tmp_path / "agent.py"
    file.write_text("first = 1\n")
    return Code(str(file), "Agent", "hello")


def loaded(code: Code) -> Loaded:
    return Loaded(code, (code.file,), CodeStamps().of([code.file]), "shared")


def test_it_outlives_the_coordinator(tmp_path: Path, code: Code) -> None:
    path = tmp_path / "quarantine.json"
    Quarantine(FileDocuments(tmp_path)).add(ALICE, loaded(code), "it blocked")
    kept = Quarantine(FileDocuments(tmp_path))
    assert kept.holds(ALICE, code, CodeStamps())
    assert kept.reason(ALICE) == "it blocked"
    assert not kept.holds(BOB, code, CodeStamps())
    assert path.stat().st_mode & 0o077 == 0


def test_an_edit_of_the_code_ends_it(tmp_path: Path, code: Code) -> None:
    path = tmp_path / "quarantine.json"
    quarantine = Quarantine(FileDocuments(tmp_path))
    quarantine.add(ALICE, loaded(code), "it blocked")
    quarantine.add(BOB, loaded(code), "it blocked")
    (tmp_path / "agent.py").write_text("second = 2\n")
    assert not quarantine.holds(ALICE, code, CodeStamps())
    assert list(json.loads(path.read_bytes())["agents"]) == ["hello/bob"]
    assert not Quarantine(FileDocuments(tmp_path)).holds(ALICE, code, CodeStamps())


def test_another_class_ends_it(tmp_path: Path, code: Code) -> None:
    quarantine = Quarantine()
    quarantine.add(BOB, loaded(code), "it blocked")
    assert not quarantine.holds(BOB, Code(code.file, "Other", "hello"), CodeStamps())
    assert quarantine.reason(BOB) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": 2, "agents": {}}',
        '{"format": 1, "agents": {"hello/bob": 1}}',
        '{"format": 1, "agents": {"nobody": {}}}',
    ],
)
def test_a_file_that_cannot_be_read_counts_as_none(
    tmp_path: Path, code: Code, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "quarantine.json"
    path.write_text(text)
    quarantine = Quarantine(FileDocuments(tmp_path))
    assert not quarantine.holds(BOB, code, CodeStamps())
    assert "quarantine_not_read" in caplog.text
    quarantine.add(BOB, loaded(code), "it blocked")
    assert Quarantine(FileDocuments(tmp_path)).holds(BOB, code, CodeStamps())
