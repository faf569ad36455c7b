"""What the example reviewer takes in, finds and says; no agent runs here."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
import reviewer
import reviewer_analysis as analysis
import reviewer_source as source
from hypothesis import given
from hypothesis import strategies as st

SHAPES = b'''"""Shapes."""
import math
from os import path as p
from .units import inch


class Circle:
    def area(self):  # TODO: ellipses
        def square(x):
            return x * x

        text = "# TODO: not a comment"
        return math.pi * square(self.r), text


async def fetch():
    return 1
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "shapes-1.0"
    (root / "shapes").mkdir(parents=True)
    (root / "shapes" / "__init__.py").write_bytes(SHAPES)
    (root / "shapes" / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nimport math  # FIXME: caf\xe9\n")
    (root / "broken.py").write_bytes(b"# TODO: mend\ndef f(:\n")
    (root / "data.bin").write_bytes(bytes(5000))
    return root


def tar_of(path: Path, members: list[tarfile.TarInfo], content: bytes = b"x") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return path


def contents(root: Path) -> dict[str, bytes]:
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in root.rglob("*") if file.is_file()}


class TestBringingIn:
    def test_a_directory_without_tools_folders_and_links(self, project: Path, tmp_path: Path) -> None:
        (project / ".git").mkdir()
        (project / ".git" / "config").write_text("secret")
        (project / "out").symlink_to("/etc")
        (project / "passwd").symlink_to("/etc/passwd")
        brought = source.bring_in(project, tmp_path / "in")
        assert set(contents(tmp_path / "in")) == {"shapes/__init__.py", "shapes/latin.py", "broken.py", "data.bin"}
        assert (brought.files, brought.left_out) == (4, 2)
        assert not any(path.is_symlink() for path in (tmp_path / "in").rglob("*"))

    def test_an_archive_gives_the_same_as_its_directory(self, project: Path, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as archive:
            archive.add(project, arcname=".")
        with zipfile.ZipFile(tmp_path / "p.whl", "w") as wheel:
            for name, data in contents(project).items():
                wheel.writestr(name, data)
        for name in ("p.tar.gz", "p.whl"):
            source.bring_in(tmp_path / name, tmp_path / "in")
            assert contents(tmp_path / "in") == contents(project)

    def test_it_takes_the_place_of_what_was_there(self, project: Path, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "old.py").write_text("")
        source.bring_in(project, tmp_path / "in")
        assert not (tmp_path / "in" / "old.py").exists()

    @pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:\\evil"])
    def test_a_path_that_leads_out_is_refused_and_nothing_is_touched(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "old.py").write_text("")
        archive = tar_of(tmp_path / "p.tar.gz", [tarfile.TarInfo("ok"), tarfile.TarInfo(name)])
        with pytest.raises(source.CannotReviewError, match="outside"):
            source.bring_in(archive, tmp_path / "in")
        assert set(contents(tmp_path)) == {"in/old.py", "p.tar.gz"}

    def test_links_and_devices_in_archives_are_left_out(self, tmp_path: Path) -> None:
        members = [tarfile.TarInfo(name) for name in ("file", "soft", "hard", "pipe")]
        for member, kind in zip(members[1:], (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE), strict=True):
            member.type, member.linkname = kind, "/etc/passwd"
        assert source.bring_in(tar_of(tmp_path / "p.tar.gz", members), tmp_path / "in").left_out == 3
        with zipfile.ZipFile(tmp_path / "p.zip", "w") as wheel:
            link = zipfile.ZipInfo("soft")
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            wheel.writestr(link, "/etc/passwd")
            wheel.writestr("file", "x")
        assert source.bring_in(tmp_path / "p.zip", tmp_path / "in").left_out == 1
        assert contents(tmp_path / "in") == {"file": b"x"}

    def test_what_is_too_large_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        archive = tar_of(tmp_path / "p.tar.gz", [tarfile.TarInfo(str(n)) for n in range(4)], content=bytes(1000))
        monkeypatch.setattr(source, "MAX_BYTES", 3999)
        with pytest.raises(source.CannotReviewError, match="larger"):
            source.bring_in(archive, tmp_path / "in")
        monkeypatch.setattr(source, "MAX_FILES", 3)
        with pytest.raises(source.CannotReviewError, match="more than 3 files"):
            source.bring_in(archive, tmp_path / "in")
        assert not (tmp_path / "in").exists()

    def test_what_is_no_project_is_named(self, project: Path, tmp_path: Path) -> None:
        cut = tmp_path / "cut.tar.gz"
        whole = tar_of(tmp_path / "p.tar.gz", [tarfile.TarInfo("a")], content=os.urandom(4000)).read_bytes()
        cut.write_bytes(whole[: len(whole) // 2])
        flipped = tmp_path / "flipped.zip"
        with zipfile.ZipFile(flipped, "w") as archive:
            archive.writestr("a.py", "content")
        flipped.write_bytes(flipped.read_bytes().replace(b"content", b"CONTENT"))
        for path, why in (
            (tmp_path / "none", "no file or directory"),
            (project / "broken.py", "no directory, .tar.gz or .whl"),
            (cut, "damaged"),
            (flipped, "damaged"),
        ):
            with pytest.raises(source.CannotReviewError, match=why):
                source.bring_in(path, tmp_path / "in")
            assert not (tmp_path / "in").exists()
        with pytest.raises(source.CannotReviewError, match="my own workspace"):
            source.bring_in(tmp_path, tmp_path / "in")


class TestFindingOut:
    def test_survey(self, project: Path) -> None:
        found = analysis.survey(project, "shapes-1.0")
        assert (found.files, found.size) == (4, sum(len(data) for data in contents(project).values()))
        shapes = analysis.Module(lines=17, functions=3, classes=1)
        assert found.modules["shapes/__init__.py"] == shapes
        assert "line 2" in found.modules["broken.py"].problem
        assert found.modules["shapes/latin.py"].problem == ""

    def test_an_empty_project_is_no_error(self, tmp_path: Path) -> None:
        empty = analysis.survey(tmp_path, "empty")
        assert empty.modules == {}
        assert "none of them Python" in reviewer.overview(empty)[0]
        assert analysis.largest_files(tmp_path, 3) == analysis.longest_functions(tmp_path, 3) == []

    def test_longest_functions(self, project: Path) -> None:
        assert [place.text for place in analysis.longest_functions(project, 2)] == [
            "Circle.area, 6 lines",
            "Circle.area.square, 2 lines",
        ]

    def test_notes_are_comments_also_in_files_that_do_not_parse(self, project: Path) -> None:
        found = [(place.path, place.line, place.text) for place in analysis.notes(project)]
        assert found == [
            ("broken.py", 1, "TODO: mend"),
            ("shapes/__init__.py", 8, "TODO: ellipses"),
            ("shapes/latin.py", 2, "FIXME: café"),
        ]

    @pytest.mark.parametrize(
        ("name", "lines"), [("math", [2, 2]), ("os", [3]), ("os.path", [3]), ("units", [4]), ("mat", [])]
    )
    def test_imports(self, project: Path, name: str, lines: list[int]) -> None:
        assert [place.line for place in analysis.imports_of(project, name)] == lines

    def test_largest_files(self, project: Path) -> None:
        assert [place.path for place in analysis.largest_files(project, 1)] == ["data.bin"]

    @given(data=st.binary(max_size=200))
    def test_no_content_is_too_odd(self, data: bytes) -> None:
        analysis.module(data)
        list(analysis.comments(data))

    def test_nesting_beyond_the_parser_is_a_fact(self) -> None:
        assert analysis.module(b"(" * 100_000).problem


class TestUnderstanding:
    @pytest.mark.parametrize(
        ("text", "command", "argument", "count"),
        [
            ("review /tmp/My Project", "review", "/tmp/My Project", 10),
            ("please review '/tmp/a.whl'", "review", "/tmp/a.whl", 10),
            ("review", "review", "", 10),
            ("largest files", "largest files", "", 10),
            ("What are the 3 biggest files?", "largest files", "", 3),
            ("5 longest functions", "longest functions", "", 5),
            ("any TODOs?", "TODOs", "", 10),
            ("imports of os.path", "imports of", "os.path", 10),
            ("Where is re imported?", "imports of", "re", 10),
            ("imports", "", "", 10),
            ("report", "report", "", 10),
            ("", "help", "", 10),
            ("what is the meaning of life", "", "", 10),
        ],
    )
    def test_questions(self, text: str, command: str, argument: str, count: int) -> None:
        assert reviewer.understand(text) == (command, argument, count)

    @given(text=st.text(max_size=100))
    def test_anything_is_understood_or_not_but_never_an_error(self, text: str) -> None:
        command, argument, count = reviewer.understand(text)
        assert count >= 1
        assert argument == "" or command in {"review", "imports of"}


def test_the_report_has_every_finding(project: Path) -> None:
    finding = reviewer.Finding(title="Left to do", places=analysis.notes(project))
    nothing = reviewer.Finding(title="Imports of x", places=[])
    report = reviewer.render(analysis.survey(project, "shapes-1.0"), {"TODOs": finding, "imports of x": nothing})
    assert report.startswith("# Review of shapes-1.0\n\nshapes-1.0: 3 Python files of 4, 21 lines")
    assert "- `shapes/__init__.py:8` TODO: ellipses\n" in report
    assert report.endswith("## Imports of x\n\nNone.\n")
