"""Compile the tests as pytest does, assertions rewritten, where it finds them: ``compile_tests.py``.

It keeps them by itself, but not under PYTHONDONTWRITEBYTECODE: each worker of each run then compiles 300 modules, which
takes longer than all else before its first test. What is kept is found by a hash of the source. The functions are
pytest's own and not public; where they are not as they were, its workers compile the modules as before.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, cast

from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc_fp, get_cache_dir

TESTS = Path(__file__).parents[1] / "tests"


def compile_test(source: Path) -> None:
    """Compile a module, unless this was done."""
    kept = get_cache_dir(source) / (source.name.removesuffix(".py") + PYC_TAIL)
    if _read_pyc(source, kept) is not None:
        return
    source_hash, code = _rewrite_test(source, cast("Any", None))  # which would name a hook that nothing here has
    kept.parent.mkdir(exist_ok=True)
    new = kept.with_name(f"{kept.name}.{os.getpid()}")
    with new.open("wb") as file:
        _write_pyc_fp(file, source_hash, code)
    new.replace(kept)


def main() -> int:
    """Compile all tests, on all cores; return 0."""
    sources = [*TESTS.rglob("test_*.py"), *TESTS.rglob("conftest.py")]
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_test, sources, chunksize=10))
    return 0


if __name__ == "__main__":
    sys.exit(main())
