"""Stamps of source files, and which files an agent's code consists of."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.fleet.code.code_stamp import CodeStamps, SharedStamps

if TYPE_CHECKING:
    from collections.abc import Iterable

DEADLINE_S = 30
LONG_AGO_NS = 1_000_000_000_000_000_000


def test_a_stamp_is_of_the_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("a = 1\n")
    two.write_text("b = 1\n")
    stamps = CodeStamps()
    both = stamps.of([str(one), str(two)])
    assert len(both) == 12
    assert both == stamps.of([str(two), str(one)]) == CodeStamps().of([str(one), str(two)])
    assert both != stamps.of([str(one)])
    os.utime(one, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert stamps.of([str(one), str(two)]) == both, "it was only touched"
    one.write_text("a = 2\n")
    assert stamps.of([str(one), str(two)]) != both
    one.write_text("a = 1\n")
    assert stamps.of([str(one), str(two)]) == both
    one.unlink()
    gone = stamps.of([str(one), str(two)])
    assert gone != both
    one.mkdir()
    assert stamps.of([str(one), str(two)]) == gone


def test_a_file_that_was_changed_within_one_tick_of_its_file_system_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    now_ns = time.time_ns()
    file.write_text("a = 1\n")
    os.utime(file, ns=(now_ns, now_ns))
    stamps = CodeStamps()
    before = stamps.of([str(file)])
    with file.open("r+") as opened:
        opened.write("a = 2\n")
    os.utime(file, ns=(now_ns, now_ns))
    assert stamps.of([str(file)]) != before


def test_a_settled_file_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("a = 1\n")
    os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS))
    stamps = CodeStamps()
    before = stamps.of([str(file)])
    with file.open("r+") as opened:
        opened.write("a = 2\n")
    os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert stamps.of([str(file)]) == before, "by its size and time it is the same"


async def test_each_call_sees_the_files_as_they_are_after_it_and_calls_share_looks(tmp_path: Path) -> None:
    class Slow(CodeStamps):
        looks = 0

        def of(self, sources: Iterable[str]) -> str:
            self.looks += 1
            stamp = super().of(sources)
            looking.set()
            assert go_on.wait(DEADLINE_S)
            return stamp

    file = tmp_path / "one.py"
    file.write_text("a = 1\n")
    looking, go_on = threading.Event(), threading.Event()
    slow = Slow()
    shared, sources = SharedStamps(slow), (str(file),)
    async with asyncio.timeout(DEADLINE_S):
        first = asyncio.ensure_future(shared.of(sources))
        await asyncio.to_thread(looking.wait, DEADLINE_S)
        file.write_text("a = 22\n")
        others = [asyncio.ensure_future(shared.of(sources)) for _ in range(10)]
        await asyncio.sleep(0)
        others[0].cancel()
        go_on.set()
        stamps = set(await asyncio.gather(*others[1:]))
        assert stamps == {CodeStamps().of(sources)}
        assert await first not in stamps
    assert slow.looks == 2


def test_an_agents_code_is_its_file_and_what_it_imports_from_its_directory(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for directory in (project / "tools" / "deep", project / ".venv" / "site-packages", elsewhere):
        directory.mkdir(parents=True)
    for name in ("beside", "unused", "tools/__init__", "tools/deep/__init__", "tools/deep/inner"):
        (project / f"{name}.py").write_text("")
    (project / ".venv" / "site-packages" / "installed.py").write_text("")
    (elsewhere / "other.py").write_text("")
    agent = project / "agent.py"
    agent.write_text("import beside, installed, other\nfrom tools.deep import inner\n")
    script = "import sys; from podium.agent.sources import imported_sources\n"
    script += "from podium.agent.loader import load_module\n"
    script += "from pathlib import Path; sys.path += sys.argv[2:]; before = frozenset(sys.modules)\n"
    script += "load_module(Path(sys.argv[1])); print(*imported_sources(sys.argv[1], before), sep='\\n')"
    arguments = [str(agent), str(project / ".venv" / "site-packages"), str(elsewhere)]
    names = ["agent", "beside", "tools/__init__", "tools/deep/__init__", "tools/deep/inner"]
    assert printed(script, *arguments) == [str(project / f"{name}.py") for name in names]
    inside = project / "tools" / "deep" / "agent.py"
    inside.write_text("import beside\nfrom . import inner\n")
    names = ["beside", "tools/__init__", "tools/deep/__init__", "tools/deep/agent", "tools/deep/inner"]
    assert printed(script, str(inside)) == [str(project / f"{name}.py") for name in names]


def printed(script: str, *arguments: str) -> list[str]:
    """The lines that a script prints in a process of its own."""
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[4]
    ).stdout.splitlines()
