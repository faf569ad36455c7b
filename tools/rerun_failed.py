"""Run the tests that failed once more, each alone in a fresh process: ``rerun_failed.py FILE``.

FILE is what `tests.failures` wrote. A test that passes now is printed as ``FLAKY`` with its first failure. The exit
code is 0 if every failed test passes now and at most `MAX_FLAKY` tests failed; otherwise it is 1. More failures than
that have another cause than a slow machine: nothing is run again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MAX_FLAKY = 3
TESTS_FAILED = 1  # pytest.ExitCode.TESTS_FAILED


def main(path: Path) -> int:
    """Judge the run that wrote the file; return the exit code."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    failures: dict[str, str] = {line["test"]: line["report"] for line in lines if "test" in line}
    faults: list[str] = [line["run"] for line in lines if "run" in line]
    ends = [line["exit"] for line in lines if "exit" in line]
    if not ends:
        faults.append("the run did not come to its end")
    elif ends[-1] != TESTS_FAILED:
        faults.append(f"pytest ended with exit code {ends[-1]}")
    if faults:
        print("\nFAILED, and not by single tests, so nothing is run again:\n" + "\n".join(faults))
        return 1
    if len(failures) > MAX_FLAKY:
        print(f"\nFAILED: {len(failures)} tests. Up to {MAX_FLAKY} would have been run again.")
        return 1
    failed_again = [test for test in failures if not passes(test)]
    for test, report in failures.items():
        if test not in failed_again:
            print(f"\nFLAKY {test}: it failed, and passed when it was run again alone. Its first failure, {report}")
    for test in failed_again:
        print(f"\nFAILED {test}: twice, the second time alone")
    print(f"\n{len(failures)} failed, {len(failures) - len(failed_again)} of them FLAKY (the next change mends those)")
    return 1 if failed_again else 0


def passes(test: str) -> bool:
    """Run one test alone and return whether it passed. With CI=true, a skipped test fails."""
    print(f"\nonce more, alone: {test}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.failures", test]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
