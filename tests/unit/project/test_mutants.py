"""The mutation run: which tests are a row's, what is broken, and what a row's score may become."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants.__main__ import Score
from tools.mutants.mutations import Mutant, choose, mutants_of
from tools.mutants.rows import find_tests

ROOT = Path(__file__).parents[3]

SOURCE = '''
LIMIT = 3

def price(count: int, *, member: bool = False) -> int:
    """Return it."""
    assert count > 0
    total = count * 2
    if member and not total == 4:
        log(f"{count + 1}", at="x")
    return total

class Shop:
    size = 5
'''


def changes(source: str, *lines: int) -> set[tuple[int, str, str]]:
    """The changes of lines of a file."""
    return {(each.line, each.before, each.after) for each in mutants_of("shop.py", source.encode(), set(lines))}


def test_what_is_changed_is_what_functions_do() -> None:
    assert changes(SOURCE, *range(15)) == {
        (7, "count * 2", "(count // 2)"),
        (7, "2", "3"),
        (8, "member and not total == 4", "(member or not total == 4)"),
        (8, "member and not total == 4", "(not (member and (not total == 4)))"),
        (8, "not total == 4", "(total == 4)"),
        (8, "total == 4", "(total != 4)"),
        (8, "4", "5"),
        (9, 'log(f"{count + 1}", at="x")', "pass"),
        (9, 'log(f"{count + 1}", at="x")', "log(f'{count + 1}')"),
        (9, '"x"', "'xx'"),
        (10, "return total", "return None"),
    }


def test_only_lines_that_run_are_changed() -> None:
    assert changes(SOURCE, 2, 10, 13) == {(10, "return total", "return None")}


def test_a_changed_file_differs_in_the_change() -> None:
    source = "def f(é):\n    return 'é', é + 1  # é\n".encode()
    applied = {each.applied(source).decode().splitlines()[1] for each in mutants_of("f.py", source, {2})}
    assert applied == {
        "    return None  # é",
        "    return 'éx', é + 1  # é",
        "    return 'é', (é - 1)  # é",
        "    return 'é', é + 2  # é",
    }


def test_lines_of_few_rows_and_one_change_of_each_come_first() -> None:
    mutants = [Mutant("a.py", "f", line, 0, 0, f"{line}", f"{after}") for line in (1, 2, 3) for after in "xyz"]
    others = {("a.py", 1): 9, ("a.py", 2): 1, ("a.py", 3): 1}
    chosen = choose(mutants, "S1.2", others, 7)
    assert [mutant.line for mutant in chosen[6:]] == [1]
    assert {mutant.line for mutant in chosen[:2]} == {2, 3}
    assert choose(mutants[::-1], "S1.2", others, 7) == chosen
    assert choose(mutants, "S1.3", others, 7) != chosen


def test_a_row_is_named_above_beside_and_in_a_test(tmp_path: Path) -> None:
    (tmp_path / "tests" / "e2e").mkdir(parents=True)
    (tmp_path / "tests" / "test_one.py").write_text(
        '"""S9.9 is of no test."""\n'
        "# S1.1, S1.3-S1.5\n"
        "# and why\n"
        "@mark\n"
        "def test_above(): pass\n"
        "class TestIt:\n"
        "    async def test_beside(self):  # C.7\n"
        '        """S1.5 is here"""\n'
        "# S9.8\n"
        "def helper(): pass\n"
    )
    (tmp_path / "tests" / "e2e" / "test_two.py").write_text("# S1.5, S1.20\ndef test_with_ray(): pass\n")
    above, beside = "tests/test_one.py::test_above", "tests/test_one.py::TestIt::test_beside"
    assert find_tests(tmp_path) == {
        "C.7": [beside],
        "S1.1": [above],
        "S1.3": [above],
        "S1.4": [above],
        "S1.5": [beside, above],
        "S1.20": ["tests/e2e/test_two.py::test_with_ray"],
    }


@pytest.mark.parametrize(
    ("score", "before", "is_worse"),
    [
        (Score(1, 20, "a"), None, False),
        (Score(0, 20, "a"), None, True),
        (Score(0, 0, "a"), None, False),
        (Score(0, 0, "b"), Score(6, 20, "a"), True),
        (Score(5, 20, "a"), Score(6, 20, "a"), True),
        (Score(6, 20, "a"), Score(5, 20, "a"), False),
        (Score(5, 20, "b"), Score(6, 20, "a"), False),
        (Score(0, 20, "b"), Score(6, 20, "a"), True),
        (Score(0, 20, "b"), Score(0, 20, "a"), False),
    ],
)
def test_the_same_mutants_may_not_be_killed_less_and_some_must_be(
    score: Score, before: Score | None, is_worse: bool
) -> None:
    assert score.is_worse_than(before) == is_worse


STRONG = "def test_strong():  # S1.1\n    assert [sign(-1), sign(0), sign(1)] == [-1, 0, 1]\n"
WEAK = "def test_weak():  # S1.2\n    twice(1)\n"


def test_a_run_scores_rows_and_fails_for_one_that_notices_nothing(tmp_path: Path) -> None:
    for name, text in {
        "podium/__init__.py": "",
        "podium/signs.py": "def sign(x):\n    return (x > 0) - (x < 0)\n\ndef twice(x):\n    return x * 2\n",
        "tests/test_it.py": f"from podium.signs import sign, twice\n{STRONG}{WEAK}",
        "pyproject.toml": "[tool.pytest.ini_options]\n"
        'addopts = ["--disable-plugin-autoload", "-p", "_hypothesis_pytestplugin", "-p", "xdist.plugin"]\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copytree(ROOT / "tools" / "mutants", tmp_path / "tools" / "mutants")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    def ran(*rows: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.mutants", *rows]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    strong = ran("S1.1")
    assert strong.returncode == 0, strong.stdout + strong.stderr
    assert "1 rows, 0 of them worse" in strong.stdout
    listed = (tmp_path / "tests" / "mutants.txt").read_text()
    assert listed.startswith("S1.1 6/6 ")
    assert (tmp_path / "podium" / "signs.py").read_text().startswith("def sign(x):\n    return (x > 0) - (x < 0)\n")
    both = ran()
    assert both.returncode == 1, both.stdout + both.stderr
    assert "survives: podium/signs.py:5: x * 2 -> (x // 2)" in both.stdout
    assert "2 rows, 1 of them worse: S1.2" in both.stdout
    assert (tmp_path / "tests" / "mutants.txt").read_text() == listed
