"""Break the product where the tests of each row run it, and say of which rows the tests notice nothing.

The scores are in ``tests/mutants.txt``, a row a line: ``S2.14 17/20 5f0c1a9e``, killed of tried, and a hash of what was
tried. A run fails, and leaves the line of a row as it is, if fewer of the same mutants are killed than before, or none.
A row without a killed mutant may stand there, but none may be added, except one whose tests run no line of the product,
such as those of ``pyproject.toml``.

Results are kept in ``.mutants`` by what the checkout holds: a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.mutants.mutations import choose, mutants_of
from tools.mutants.rows import find_tests, runs_alone
from tools.mutants.trials import Trials, files_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.mutants.mutations import Mutant

ROOT: Final = Path(__file__).parents[2]
SCORES: Final = ROOT / "tests" / "mutants.txt"
MAX_MUTANTS: Final = 20
"""Mutants of a row."""
_TIMES_LONGER: Final = 3
_START_S: Final = 20.0
"""The timeout of a changed run: so many times what the unchanged one took, and so much for a machine that is busy."""


@dataclass(frozen=True, slots=True)
class Score:
    """What the tests of a row make of its mutants."""

    killed: int
    tried: int
    digest: str

    def is_worse_than(self, before: Score | None) -> bool:
        """Whether it may not replace another; None: there is none."""
        if before is not None and before.digest == self.digest:
            return self.killed < before.killed
        return self.killed == 0 and (self.tried > 0 if before is None else before.killed > 0)

    def __str__(self) -> str:
        return f"{self.killed}/{self.tried} {self.digest}"


def main() -> int:
    """Try the rows; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="numbers of rows, such as S2.14, or their beginnings, such as S3")
    asked = parser.parse_args().rows
    scores = read_scores(SCORES)
    worse = []
    with Trials(ROOT) as trials:
        results = Results(ROOT / ".mutants" / f"{_digest_of_checkout()}.jsonl")
        rows = Rows(trials, results, find_tests(ROOT))
        tried = [row for row in rows.tests if not asked or any(f"{row}.".startswith(f"{each}.") for each in asked)]
        for row in tried:
            score = rows.try_row(row)
            print(f"{row}: {score}", flush=True)
            if score is None or score.is_worse_than(scores.get(row)):
                worse.append(row)
                print(f"{row}: WORSE than {scores.get(row, 'one killed')}", flush=True)
            else:
                scores[row] = score
                write_scores(SCORES, scores)
    print(f"{len(tried)} rows, {len(worse)} of them worse: {', '.join(worse) or '-'}")
    return 1 if worse else 0


class Results:
    """What was found, by name, in a file that grows by each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._known: dict[str, Any] = dict(map(json.loads, lines))

    def of(self, name: str, find: Callable[[], Any]) -> Any:
        """Return what was found; find and keep it if it is not known."""
        if name not in self._known:
            self._known[name] = find()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, self._known[name]]) + "\n")
        return self._known[name]


class Rows:
    """The rows, and the lines that their tests run: those with servers in a traced run each, all others in one."""

    def __init__(self, trials: Trials, results: Results, tests: dict[str, list[str]]) -> None:
        self.tests: Final = tests
        self._trials, self._results = trials, results
        names = sorted({name for of_row in tests.values() for name in of_row})
        runs = [[name for name in names if not runs_alone(name)], *([name] for name in names if runs_alone(name))]
        lines: dict[str, dict[str, list[int]]] = {}
        modules: dict[str, None] = {}  # in the order of their imports
        for run in runs:
            found, imported = results.of(f"lines {' '.join(run)}", functools.partial(trials.trace, run))
            lines |= found
            modules |= dict.fromkeys(imported)
        trials.import_before(modules)
        self._lines = {
            row: {(path, line) for name in of_row for path, found in lines.get(name, {}).items() for line in found}
            for row, of_row in tests.items()
        }
        self._rows_of_line = Counter(place for places in self._lines.values() for place in places)

    def try_row(self, row: str) -> Score | None:
        """Try the mutants of a row and print those that survive; None if its tests fail when nothing is changed."""
        tests = self.tests[row]
        print(f"{row}: {' '.join(tests)}", flush=True)
        took_s = self._results.of(f"time {' '.join(tests)}", lambda: self._time_of(tests))
        if took_s is None:
            return None
        files: dict[str, set[int]] = {}
        for path, line in self._lines[row]:
            files.setdefault(path, set()).add(line)
        mutants = [
            mutant
            for path, lines in files.items()
            for mutant in mutants_of(path, (self._trials.tree / path).read_bytes(), lines)
        ]
        chosen = choose(mutants, row, self._rows_of_line, MAX_MUTANTS)
        killed = 0
        for mutant in chosen:
            kills = functools.partial(self._kills, tests, mutant, _TIMES_LONGER * took_s + _START_S)
            dies = self._results.of(f"{' '.join(tests)} {mutant.line} {mutant.key}", kills)
            killed += dies
            if not dies:
                print(f"  survives: {mutant.path}:{mutant.line}: {mutant.before} -> {mutant.after}", flush=True)
        digest = hashlib.sha256("\n".join(mutant.key for mutant in chosen).encode()).hexdigest()[:8]
        return Score(killed, len(chosen), digest)

    def _time_of(self, tests: list[str]) -> float | None:
        """Return the time of tests in a fork, in seconds; None if they fail."""
        began_s = time.monotonic()
        if self._trials.passes(tests):
            return time.monotonic() - began_s
        said = self._trials.output.read_text(encoding="utf-8", errors="replace").splitlines()
        print("its tests fail when nothing is changed:", *said[-20:], sep="\n", flush=True)
        return None

    def _kills(self, tests: list[str], mutant: Mutant, timeout_s: float) -> bool:
        with self._trials.changed(mutant):
            return not self._trials.passes(tests, timeout_s)


def read_scores(path: Path) -> dict[str, Score]:
    """Read the scores that a run may not fall behind."""
    scores = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row, share, digest = line.split()
        killed, _, tried = share.partition("/")
        scores[row] = Score(int(killed), int(tried), digest)
    return scores


def write_scores(path: Path, scores: dict[str, Score]) -> None:
    """Write the scores, by row."""
    order = sorted(scores, key=lambda row: (row.partition(".")[0], int(row.partition(".")[2])))
    path.write_text("".join(f"{row} {scores[row]}\n" for row in order), encoding="utf-8")


def _digest_of_checkout() -> str:
    """Return a hash of what the checkout holds that tests may run."""
    digest = hashlib.sha256()
    for name in files_of(ROOT):
        if name.endswith((".py", ".sql", ".toml")):
            digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
