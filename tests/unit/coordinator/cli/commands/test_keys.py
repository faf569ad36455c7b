"""``podium keys``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def run(home: Path, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["keys", *arguments, "--home", str(home)]) == code
    return capsys.readouterr().out


def as_json(home: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(home, capsys, *arguments, "--json"))
    return found


def test_a_key_is_printed_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(home, capsys, "create", "ci").strip()
    assert text.startswith("pk_")
    listed = run(home, capsys, "list")
    assert "ci" in listed
    assert text not in listed
    assert text[:13] in listed
    (key,) = as_json(home, capsys, "list")["keys"]
    assert (key["name"], key["tenant"], key["scopes"], key["expires_at"]) == ("ci", "default", ["read", "write"], None)


def test_options_of_a_key(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = as_json(home, capsys, "create", "ops", "--tenant", "acme", "--scope", "admin", "--expires", "90d")
    assert (made["tenant"], made["scopes"]) == ("acme", ["admin"])
    assert made["expires_at"] == made["created_at"] + 90 * 86_400_000
    rotated = as_json(home, capsys, "rotate", made["key_id"])
    assert rotated["key_id"] == made["key_id"]
    assert rotated["key"] != made["key"]
    assert as_json(home, capsys, "revoke", made["key_id"]) == {"key_id": made["key_id"], "revoked": True}
    assert as_json(home, capsys, "list") == {"keys": []}
    lines = [json.loads(line) for line in (home / "logs" / "audit.log").read_text().splitlines()]
    assert [line["what"] for line in lines] == ["key.create", "key.rotate", "key.revoke"]
    assert all(line["who"].startswith("cli uid ") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("create", "x", "--scope", "root"), ExitCode.USAGE, "there is no scope 'root'"),
        (("create", "x", "--expires", "soon"), ExitCode.USAGE, "not a duration"),
        (("create", "x", "--tenant", "A/B"), ExitCode.INVALID_ADDRESS, "tenant"),
        (("revoke", "key_none"), ExitCode.NOT_FOUND, "podium keys list"),
        (("rotate", "key_none"), ExitCode.NOT_FOUND, "podium keys list"),
    ],
)
def test_what_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: ExitCode, says: str
) -> None:
    assert main(["keys", *arguments, "--home", str(home)]) == code
    assert says in capsys.readouterr().err
