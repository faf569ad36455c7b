from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.cli_kit import terminal
from chronicle.cli_kit.times import ago, iso
from coordinator.cli.terminal import table

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_no_control_characters() -> None:
    nasty = "a\x1b[2Jb\x9b31mc\rd\x07\x00\x7fe\tf\ng"
    assert terminal.shown(nasty, tty=True) == "a[2Jb31mcde\tf\ng"
    assert terminal.shown(nasty, tty=False) == nasty


@pytest.mark.parametrize(
    "steering",
    ["\u202e", "\u202a", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c", "\u2028", "\u200b", "\ufeff", "\U000e0041"],
)
def test_a_terminal_gets_nothing_that_changes_the_order_of_text_or_hides_some(steering: str) -> None:
    nasty = f"safe{steering}gpj.exe"
    assert terminal.shown(nasty, tty=True) == "safegpj.exe"
    assert terminal.shown(nasty, tty=False) == nasty
    assert steering not in terminal.one_line(nasty)
    as_json = terminal.json_text(nasty)
    assert as_json.isascii()
    assert json.loads(as_json) == nasty


def test_a_terminal_gets_what_scripts_and_emoji_are_joined_with() -> None:
    for joined in ("\U0001f469\u200d\U0001f52c", "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "e\u0301"):
        assert terminal.shown(joined, tty=True) == joined
        assert terminal.json_text(joined) == f'"{joined}"'


def test_whether_stdout_is_a_terminal_is_asked_at_each_output(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, expected in ((Tty(), "x\n"), (io.StringIO(), "\x1bx\n")):
        monkeypatch.setattr(sys, "stdout", stream)
        terminal.write_line("\x1bx")
        assert stream.getvalue() == expected


@given(json_values)
def test_json_means_the_same_and_is_safe_to_show_and_to_encode(value: object) -> None:
    text = terminal.json_text(value)
    assert json.loads(text) == value
    assert "\n" not in text
    assert text == terminal.shown(text, tty=True)
    text.encode()


def test_json_escapes_what_a_terminal_could_act_on() -> None:
    assert terminal.json_text("é\x9b\u202e\ud800\x1b") == r'"é\u009b\u202e\ud800\u001b"'


def test_json_keeps_every_digit() -> None:
    assert terminal.json_text({"n": 2**200}) == f'{{"n":{2**200}}}'


def test_what_the_encoding_cannot_hold_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", errors="strict"))
    terminal.write("aé\udcff\n")
    assert raw.getvalue() == b"a\\xe9\\udcff\n"


def test_tables_are_never_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    table(("A", "B"), [("1", long), ("[bold]", "a\nb\x1b")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["A", "B"]
    assert lines[1].split() == ["1", long]
    assert lines[2].split() == ["[bold]", r"a\nb\x1b"]
    assert all(line == line.rstrip() for line in lines)


def test_an_escaped_line_is_one_line_in_which_only_tabs_may_stay() -> None:
    nasty = "a\tb\n\x1b\u202e\xa0\udcff\U000e0041é"
    assert terminal.one_line(nasty) == r"a\tb\n\x1b\u202e\xa0\udcff\U000e0041é"
    assert terminal.one_line(nasty, keep_tabs=True) == "a\t" + terminal.one_line(nasty[2:])


def test_times() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert iso(10**18) == f"{10**18} ms"
    assert [ago(ms) for ms in (0, 999, 1_000, 61_000, 3_600_000, 86_400_000)] == [
        "just now",
        "just now",
        "1 s ago",
        "1 min ago",
        "1 h ago",
        "1 d ago",
    ]
