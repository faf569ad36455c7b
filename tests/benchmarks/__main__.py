"""Run the benchmarks and print one table: ``python -m tests.benchmarks [NAME ...] [--json]``.

A benchmark is a module ``bench_NAME.py`` with ``run() -> list[Row]``, in the folder of the package that it measures;
beside it are the peers and loads that it is measured with. Each module runs in a process of its own, so that the CPU
it pins itself to or the Ray it starts disturbs no other. Every value is a ratio, or is shown beside one, taken within
one run: the machine is shared, and only ratios can be compared. A missed target is marked, and does not fail the run;
a benchmark that breaks does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypedDict

from rich.console import Console
from rich.table import Table

__all__ = ["Row", "main"]

HERE = Path(__file__).parent
IF_NAMED = frozenset({"cluster"})
"""They run only if they are named: they need root, and start many processes."""
LIMIT_S = 1_800
"""For one module."""


class Row(TypedDict):
    """One figure."""

    name: str
    value: float
    unit: str
    """``x`` for a ratio."""
    target: str
    """``<= 1.5``, ``>= 0.9`` in the same unit, or empty: only reported."""
    floor: str
    """What it is measured against, in words, with that figure."""


class Result(TypedDict):
    """What one module gave."""

    benchmark: str
    seconds: float
    rows: list[Row]
    error: str


def modules() -> dict[str, str]:
    """The modules of all benchmarks, by their names, sorted."""
    paths = {path.stem.removeprefix("bench_"): path for path in HERE.glob("*/bench_*.py")}
    return {name: f"tests.benchmarks.{path.parent.name}.{path.stem}" for name, path in sorted(paths.items())}


def met(row: Row) -> bool | None:
    """Whether a row reaches its target; None without one."""
    found = re.match(r"(<=|>=|≤|≥)\s*([\d.]+)", row["target"])
    if found is None:
        return None
    limit = float(found[2])
    return row["value"] <= limit if found[1] in {"<=", "≤"} else row["value"] >= limit


def run_here(name: str, into: Path) -> None:
    """Run one benchmark in this process and leave its rows as JSON."""
    rows = importlib.import_module(modules()[name]).run()
    into.write_text(json.dumps(rows))


def run_apart(name: str) -> Result:
    """Run one benchmark in a process of its own."""
    start = time.perf_counter()
    rows: list[Row] = []
    error = ""
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as folder:
        into = Path(folder, "rows.json")
        command = [sys.executable, "-m", "tests.benchmarks", name, "--into", str(into)]
        try:
            # What a benchmark prints goes to stderr: stdout is for the results.
            done = subprocess.run(command, check=False, stdout=sys.stderr.fileno(), timeout=LIMIT_S)
            if done.returncode == 0:
                rows = json.loads(into.read_text())
            else:
                error = f"ended with exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            error = f"not finished after {LIMIT_S} s"
    return Result(benchmark=name, seconds=round(time.perf_counter() - start, 1), rows=rows, error=error)


def show(results: list[Result]) -> None:
    """Print the table."""
    table = Table("benchmark", "what", "value", "target", "", "against", title="podium benchmarks")
    for result in results:
        for row in result["rows"]:
            verdict = {True: "[green]ok[/]", False: "[red]missed[/]", None: ""}[met(row)]
            value = f"{row['value']:.3g} {row['unit']}"
            table.add_row(result["benchmark"], row["name"], value, row["target"], verdict, row["floor"])
        if result["error"]:
            table.add_row(result["benchmark"], f"[red]{result['error']}[/]", "", "", "", "")
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main() -> None:
    """Parse the command line, run, show."""
    names = list(modules())
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Run the benchmarks.")
    parser.add_argument("name", nargs="*", help=f"which ones (all of: {', '.join(names)})")
    parser.add_argument("--json", action="store_true", help="one JSON array on stdout instead of a table")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := sorted(set(options.name) - set(names)):
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    if options.into is not None:
        run_here(options.name[0], options.into)
        return
    results = []
    for name in options.name or (name for name in names if name not in IF_NAMED):
        print(f"running {name} ...", file=sys.stderr)
        results.append(run_apart(name))
    if options.json:
        print(json.dumps(results, indent=2, ensure_ascii=False))
    else:
        show(results)
    if any(result["error"] for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
