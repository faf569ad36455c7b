"""What git reads in a configuration that was made harmless: kept keys with their values, and nothing that runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.sandbox.git_config import _KEPT, harmless

KEPT = {
    "core.bare=false",
    "remote.origin.url=https://example.com/a.git",
    "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*",
}


def listed_by_git(tmp_path: Path, text: str) -> str:
    file = tmp_path / "config"
    file.write_bytes(text.encode())
    command = ["git", "config", "--file", str(file), "--list", "--null"]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode()


def read_by_git(tmp_path: Path, text: str) -> set[str]:
    return {each.replace("\n", "=", 1) for each in listed_by_git(tmp_path, text).split("\0") if each}


def test_what_git_writes_is_kept_to_the_letter(tmp_path: Path) -> None:
    repository = str(tmp_path / "made")
    for command in (
        ["git", "init", "-q", repository],
        ["git", "-C", repository, "remote", "add", "origin", "https://example.com/a;b#c"],
        ["git", "-C", repository, "config", "user.name", ' "A" \\ B '],
        ["git", "-C", repository, "config", 'branch.a "b" \\ c.remote', "origin"],
    ):
        subprocess.run(command, check=True)
        text = (tmp_path / "made" / ".git" / "config").read_text()
        assert harmless(text) == text
    assert 'user.name= "A" \\ B ' in read_by_git(tmp_path, harmless(text))


@pytest.mark.parametrize(
    "line",
    [
        "hooksPath = evil",
        "fsmonitor = evil",
        "bare = false\n[alias] x = !evil",
        "bare = false\n[include] path = evil",
        'bare = false\n[includeIf "gitdir:/"] path = evil',
        'bare = false\n[remote "evil"] uploadpack = evil',
        'bare = false\n[remote "evil"] url = ext::evil',
        'bare = false\n[remote "evil"] url = -evil',
        'bare = false\n[branch "x\\"]\n[core] hooksPath = evil"] remote = y\n[core]\nhooksPath = evil',
        'bare = false\n[core ""]\nhooksPath = evil',
        "bare = false \\\n hooksPath = evil\nhooksPath = evil",
        'bare = "false"\n\thooksPath = evil',
        "bare = false\r\n\thooksPath = evil\r",
        'bare = false\n[filter "x"] smudge = evil # [core] bare',
    ],
)
def test_nothing_that_runs_is_read_by_git(tmp_path: Path, line: str) -> None:
    remote = '[remote "origin"]\n\turl = https://example.com/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
    found = read_by_git(tmp_path, harmless(f"{remote}[core]\n{line}\n"))
    assert not [each for each in found if "evil" in each.partition("=")[2] and not each.startswith("core.bare")]
    assert {each for each in found if each.startswith("remote.origin.")} == KEPT - {"core.bare=false"}


def test_what_cannot_be_read_ends_it(tmp_path: Path) -> None:
    text = "[core]\n\tbare = false\n[\n\thooksPath = evil\n"
    assert read_by_git(tmp_path, harmless(text)) == {"core.bare=false"}
    assert harmless("\0") == harmless("bare = false") == ""


PIECES = [
    *("[core]", "[core", "]", '[remote "origin"]', '[branch "', '"]', "[include]", "[alias]", "[core.x]", '[core ""]'),
    *("hooksPath", "fsmonitor", "path", "url", "bare", "fetch", "merge", "name", "=", " = ", "evil", "ext::evil", "-"),
    *("\n", "\n\t", "\r\n", "\r", "\\\n", "\\", '\\"', '"', "#", ";", " ", "\t", "\0", "\b", "\v", "\x85", "\u2028"),
]
"""Of what git's parser and others read differently."""


ANYTHING = st.lists(st.sampled_from(PIECES) | st.characters(codec="utf-8"), max_size=5).map("".join)
ENTRIES = st.builds(
    '[{} "{}"]\n\t{} = {}\n'.format,
    st.sampled_from(["core", "remote", "branch"]),
    ANYTHING,
    st.sampled_from(["bare", "url", "merge", "hooksPath", "uploadpack"]),
    ANYTHING,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(ENTRIES | ANYTHING, max_size=6).map("".join))
def test_git_reads_kept_keys_only_whatever_the_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    listed = listed_by_git(tmp_path_factory.getbasetemp(), harmless(text))
    for entry in filter(None, listed.split("\0")):
        name = entry.partition("\n")[0] if "\n" in entry else entry
        section, key = name.partition(".")[0], name.rpartition(".")[2]
        assert key in _KEPT[section], (text, entry)
        assert key != "url" or "::" not in entry.partition("\n")[2]
