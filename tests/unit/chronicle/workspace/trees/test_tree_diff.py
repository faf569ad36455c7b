"""Differences of trees as people read them."""

from __future__ import annotations

import difflib
import subprocess
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.ids import BlobId
from chronicle.workspace.content.content import store_bytes
from chronicle.workspace.trees import tree
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind
from chronicle.workspace.trees.tree_diff import TEXT_BYTES, changes, render

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DIR = Entry(Kind.DIR, 0o755)


@pytest.fixture
def buffer() -> BlobBuffer:
    return BlobBuffer(MemoryBlobStore())


def file(buffer: BlobBuffer, data: bytes, mode: int = 0o644) -> Entry:
    return Entry(Kind.FILE, mode, content=store_bytes(buffer, data))


def seen(buffer: BlobBuffer, old: BlobId, new: BlobId) -> list[tuple[str, bytes, bytes | None]]:
    return [(change.what.value, change.path, change.old_path) for change in changes(buffer, old, new)]


def text(buffer: BlobBuffer, old: BlobId, new: BlobId) -> str:
    return b"".join(render(buffer, changes(buffer, old, new))).decode()


def test_files_that_changed_came_and_went(buffer: BlobBuffer) -> None:
    old = tree.update_tree(buffer, EMPTY, {b"a": file(buffer, b"1\n2\n"), b"b": file(buffer, b"gone\n")})
    new = tree.update_tree(buffer, old, {b"a": file(buffer, b"1\n3\n"), b"b": None, b"c": file(buffer, b"came")})
    assert seen(buffer, old, new) == [("changed", b"a", None), ("removed", b"b", None), ("added", b"c", None)]
    assert text(buffer, old, new) == (
        "diff a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"
        "diff a/b b/b\ndeleted file mode 0644\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "diff a/c b/c\nnew file mode 0644\n--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+came\n\\ No newline at end of file\n"
    )


def test_a_moved_directory_is_one_rename(buffer: BlobBuffer) -> None:
    many = {b"d/%d" % number: file(buffer, b"%d" % number) for number in range(500)}
    old = tree.update_tree(buffer, EMPTY, {b"d": DIR, **many, b"to": DIR})
    new = tree.update_tree(buffer, old, {b"d": None, b"to/e": tree.entry_at(buffer, old, b"d")})
    assert seen(buffer, old, new) == [("renamed", b"to/e", b"d")]
    assert text(buffer, old, new) == "diff a/d b/to/e\nrename from d\nrename to to/e\n"


def test_files_are_followed_out_of_a_directory_that_changed_too(buffer: BlobBuffer) -> None:
    old = tree.update_tree(buffer, EMPTY, {b"d": DIR, b"d/x": file(buffer, b"x"), b"d/y": file(buffer, b"y")})
    new = tree.update_tree(buffer, EMPTY, {b"e": DIR, b"e/x": file(buffer, b"x"), b"e/y": file(buffer, b"changed")})
    assert seen(buffer, old, new) == [
        ("removed", b"d", None),
        ("removed", b"d/y", None),
        ("added", b"e", None),
        ("renamed", b"e/x", b"d/x"),
        ("added", b"e/y", None),
    ]


def test_a_rename_prefers_the_same_name_and_leaves_out_what_is_empty(buffer: BlobBuffer) -> None:
    same = file(buffer, b"same")
    old = tree.update_tree(buffer, EMPTY, {b"a": DIR, b"a/1": same, b"a/2": same, b"a/none": file(buffer, b"")})
    new = tree.update_tree(
        buffer,
        old,
        {b"a/1": None, b"a/2": None, b"a/none": None, b"b": DIR, b"b/2": same, b"c": same, b"n": file(buffer, b"")},
    )
    assert seen(buffer, old, new) == [
        ("removed", b"a/none", None),
        ("added", b"b", None),
        ("renamed", b"b/2", b"a/2"),
        ("renamed", b"c", b"a/1"),
        ("added", b"n", None),
    ]


def test_modes_owners_attributes_and_the_root(buffer: BlobBuffer) -> None:
    was = file(buffer, b"x")
    old = tree.update_tree(buffer, EMPTY, {b"f": was})
    new = tree.update_tree(
        buffer, old, {b"f": replace(was, mode=0o755, uid=7, xattrs=((b"user.k", b"v"),)), b"": Entry(Kind.DIR, 0o700)}
    )
    assert text(buffer, old, new) == (
        "diff a/ b/\nold mode 0755\nnew mode 0700\n"
        "diff a/f b/f\nold mode 0644\nnew mode 0755\nextended attributes changed\nowner changed\n"
    )


def test_kinds_that_change(buffer: BlobBuffer) -> None:
    link = Entry(Kind.SYMLINK, 0o777, target=b"elsewhere")
    old = tree.update_tree(buffer, EMPTY, {b"x": file(buffer, b"text\n"), b"d": DIR, b"d/in": file(buffer, b"in\n")})
    new = tree.update_tree(buffer, old, {b"x": link, b"d": file(buffer, b"flat\n"), b"d/in": None})
    assert seen(buffer, old, new) == [("changed", b"d", None), ("removed", b"d/in", None), ("changed", b"x", None)]
    shown = text(buffer, old, new)
    assert "old kind file\nnew kind symlink\n" in shown
    assert "-text\n+elsewhere\n\\ No newline at end of file\n" in shown


def test_binary_and_huge_files_are_not_compared_by_line(buffer: BlobBuffer) -> None:
    old = tree.update_tree(buffer, EMPTY, {b"bin": file(buffer, b"\0a"), b"huge": file(buffer, b"x")})
    new = tree.update_tree(buffer, old, {b"bin": file(buffer, b"\0b"), b"huge": file(buffer, b"x" * (TEXT_BYTES + 1))})
    assert text(buffer, old, new) == (
        "diff a/bin b/bin\nBinary files a/bin and b/bin differ\n"
        "diff a/huge b/huge\nFiles a/huge and b/huge differ (too large to compare by line)\n"
    )


def test_names_are_quoted_so_that_no_line_can_be_forged(buffer: BlobBuffer) -> None:
    new = tree.update_tree(buffer, EMPTY, {b'a\n+++ "b\\\xff': file(buffer, b"x\n")})
    assert text(buffer, EMPTY, new).splitlines()[3] == r'+++ "b/a\n+++ \"b\\\377"'


def test_carriage_returns_end_no_line(buffer: BlobBuffer) -> None:
    old = tree.update_tree(buffer, EMPTY, {b"f": file(buffer, b"one\r\ntwo\x0cstill two\n")})
    new = tree.update_tree(buffer, old, {b"f": file(buffer, b"one\r\ntwo\x0cno more\n")})
    assert "@@ -1,2 +1,2 @@\n one\r\n-two\x0cstill two\n+two\x0cno more\n" in text(buffer, old, new)


def test_equal_trees(buffer: BlobBuffer) -> None:
    one = tree.update_tree(buffer, EMPTY, {b"f": file(buffer, b"x")})
    assert changes(buffer, one, one) == []


def lines(*numbers: int) -> bytes:
    return b"".join(b"%d\n" % number for number in numbers)


@pytest.mark.parametrize("kinds", [2, 50, 10**9])
def test_a_diff_of_many_lines_is_applied_to_get_the_new_file(buffer: BlobBuffer, tmp_path: Path, kinds: int) -> None:
    numbers = Random(kinds)
    before = [numbers.randrange(kinds) for _ in range(3_000)]
    after = before[1_000:] + before[:500]
    for _ in range(300):
        after[numbers.randrange(len(after))] = numbers.randrange(kinds)
    old = tree.update_tree(buffer, EMPTY, {b"a": file(buffer, lines(*before))})
    new = tree.update_tree(buffer, old, {b"a": file(buffer, lines(*after))})
    (tmp_path / "a").write_bytes(lines(*before))
    made = text(buffer, old, new)
    subprocess.run(["git", "apply"], input=made, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "a").read_bytes() == lines(*after)
    if kinds > len(before):
        assert made.count("\n+") < 900, "what stayed is not shown as new"


def test_a_diff_of_100_000_lines_is_made_in_proportion(buffer: BlobBuffer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in what is given to the comparison that takes the square of it."""
    given = []

    class Counting(difflib.SequenceMatcher[bytes]):
        def set_seqs(self, a: Sequence[bytes], b: Sequence[bytes]) -> None:
            given.append(len(a) * len(b))
            super().set_seqs(a, b)

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    before = range(100_000)
    after = [number if number % 2 else -number for number in before]
    old = tree.update_tree(buffer, EMPTY, {b"a": file(buffer, lines(*before))})
    new = tree.update_tree(buffer, old, {b"a": file(buffer, lines(*after))})
    assert text(buffer, old, new).count("\n+-") == 49_999
    assert 0 < sum(given) <= 2_000_000
