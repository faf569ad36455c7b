"""Environment files: their form, and messages that show no value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput
from coordinator.registry.env_file import read_env_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"),
        ("A = 1 ", "1"),
        ("export A=1", "1"),
        ("A=", ""),
        ("A=x=y", "x=y"),
        ("A=a b # comment", "a b"),
        ("A=a#b", "a#b"),
        ("A=#none", ""),
        ("A='a # b' # comment", "a # b"),
        (r"A='a\n'", r"a\n"),
        (r'A="a\n\t\"\\ # b"', 'a\n\t"\\ # b'),
        ('A=""', ""),
        ("A=$HOME", "$HOME"),
        ("A=ä", "ä"),
        ("A=1\r", "1"),
    ],
)
def test_a_line_sets_a_variable(tmp_path: Path, line: str, value: str) -> None:
    file = tmp_path / ".env"
    file.write_bytes(f"\ufeff# first\n\n  {line}\n".encode())
    assert read_env_file(file) == {"A": value}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("SECRET", "it is not NAME=value"),
        ("=SECRET", "the name before = cannot be used"),
        ("1A=SECRET", "the name before = cannot be used"),
        ("A B=SECRET", "the name before = cannot be used"),
        ("A='SECRET", "the quotes around the value of A do not match"),
        ('A="SECRET', "the quotes around the value of A do not match"),
        ("A='SECRET' more", "the quotes around the value of A do not match"),
        (r'A="SECRET\x"', "the value of A has an unknown escape"),
        ("A=SECRET\0", "the value of A has a NUL character"),
    ],
)
def test_an_invalid_line_is_named_by_its_number_and_not_shown(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / ".env"
    file.write_text(f"# comment\nB=1\n{line}\n", encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        read_env_file(file)
    assert str(refused.value).startswith(f"{file}, line 3: {problem}")
    assert "SECRET" not in str(refused.value)


def test_a_variable_is_set_once(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=SECRET\n\nA=2\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="line 3: A was set in line 1 already"):
        read_env_file(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_env_file(tmp_path)
    (tmp_path / "bin").write_bytes(b"A=\xff")
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        read_env_file(tmp_path / "bin")
