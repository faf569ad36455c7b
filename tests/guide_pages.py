"""The code of users' pages as tests: what a page shows is run in the order of the page, and its output compared.

A page runs in a directory and a process of its own. It may have these fenced blocks, and no others:

``python``, its first line ``# NAME.py``
    That file; it is written to the directory, and not run.
``python``
    Statements. All of a page share one namespace and one event loop, as in ``python -m asyncio``: ``await`` works.
``text``
    Directly below such statements: what they printed, and if they raised, the end of the traceback, from the name of
    the error on. Statements that print or raise need one. What is logged goes to stderr, and is not compared.
``console``
    Commands, one behind each ``$ ``, and what they print to stdout and stderr. What follows on the page runs in the
    directory in which they end. The steps that podium shows while its service starts (a spinner on a terminal) are left
    out. A command that fails must be followed by ``$ echo $?``.

In what is shown, ``...`` stands for any text, and all white space is alike, so that long lines can be broken.

Run as a program this module is the process of a page: it reads the blocks from stdin and writes what they did to
stdout, both as JSON.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import json
import os
import re
import subprocess
import sys
import traceback
import types
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Block", "Page", "Step", "pages", "run_page"]

ROOT = Path(__file__).parents[1]
LIMIT_S = 540
"""For a page, so that a hang is told as such before the limit of the test ends it."""
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w/]+\.py)\n")
_WITH_SERVICE = frozenset(
    {
        "README.md",
        "docs/client.md",
        "docs/sessions.md",
        "docs/tutorial.md",
        "docs/guide/cluster.md",
        "docs/guide/imports.md",
        "docs/guide/isolation.md",
        "docs/guide/projects.md",
    }
)
_ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    kind: str
    """What is written behind the fence."""
    code: str
    line: int
    """Of its first line of code."""
    shown: str | None = None
    """What statements are said to print; ``None`` for nothing."""


@dataclass(frozen=True)
class Page:
    """A document whose blocks are run."""

    path: Path
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        """Its path in the repository."""
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else self.path.name

    @property
    def uses_a_service(self) -> bool:
        """Whether its commands start the service of a home, and Ray with it."""
        return self.name in _WITH_SERVICE


@dataclass(frozen=True)
class Step:
    """What was run, with what is shown of it and what it gave."""

    code: str
    line: int
    shown: str
    output: str
    status: int = 0
    """Exit code of a command."""


def read_page(path: Path) -> Page:
    """Return a page's blocks, checked.

    Raises:
        AssertionError: a block is of no known kind.
    """
    text = path.read_text(encoding="utf-8")
    blocks: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        kind, code = match.groups()
        block = Block(kind, code, text.count("\n", 0, match.start(2)) + 1)
        if kind == "text":
            follows = blocks and not text[end : match.start()].strip()
            if not follows or blocks[-1].kind != "python" or _FILE.match(blocks[-1].code):
                raise AssertionError(f"{path}:{block.line}: text that is not directly below statements of Python")
            blocks[-1] = Block("python", blocks[-1].code, blocks[-1].line, code)
        elif kind in {"python", "console"}:
            blocks.append(block)
        else:
            raise AssertionError(f"{path}:{block.line}: a block of {kind or 'no kind'!r}, which nothing runs")
        end = match.end()
    return Page(path, tuple(blocks))


def pages() -> list[Page]:
    """Return README, the tutorial, the client's page and the guide, those that have blocks."""
    docs = ROOT / "docs"
    paths = [
        ROOT / "README.md",
        docs / "tutorial.md",
        docs / "client.md",
        docs / "sessions.md",
        *sorted((docs / "guide").glob("*.md")),
    ]
    found = [read_page(path) for path in paths]
    return [page for page in found if page.blocks]


def run_page(page: Page, directory: Path, programs: Path | None = None) -> list[Step]:
    """Run a page's blocks and compare what they print with what is shown.

    Args:
        directory: an empty one, in which they run.
        programs: a directory with programs that commands find before those of this environment.

    Returns:
        what was run.

    Raises:
        AssertionError: something printed, raised or ended otherwise; the message says what and where.
    """
    (directory / ".venv").symlink_to(sys.prefix)  # as in a clone
    environment = {
        **os.environ,
        "PATH": ":".join(
            [*([str(programs)] if programs else []), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a user has none of ours, whose imports take longer than the page
    }
    finished = subprocess.run(
        [sys.executable, "-W", "error", __file__],
        cwd=directory,
        env=environment,
        input=json.dumps([asdict(block) for block in page.blocks]),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    steps = [Step(**step) for step in json.loads(finished.stdout)]
    for number, step in enumerate(steps):
        place = f"{page.name}:{step.line}:\n{step.code.strip()}\n"
        expected, printed = step.shown.strip(), step.output.strip()
        alike = doctest.OutputChecker().check_output(f"{expected}\n", f"{printed}\n", _ALIKE)
        assert alike, f"{place}-- shown:\n{expected}\n-- printed:\n{printed}\n{finished.stderr}"
        tells = number + 1 < len(steps) and steps[number + 1].code.startswith("echo $?")
        assert step.status == 0 or tells, f"{place}ended with {step.status}; show it with `$ echo $?`\n{printed}"
    return steps


# -- in the process of the page ----------------------------------------------------------------------------------------


async def _run_blocks(blocks: list[Block]) -> list[Step]:
    import structlog

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    steps: list[Step] = []
    sys.path[0] = str(Path.cwd())  # as an interpreter started here has it
    for block in blocks:
        name = _FILE.match(block.code)
        if block.kind == "console":
            steps.extend(_run_commands(block))
        elif name:
            file = Path(name[1])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code, encoding="utf-8")
        else:
            output = await _run_statements(block, namespace)
            steps.append(Step(block.code, block.line, block.shown or "", output))
    return steps


async def _run_statements(block: Block, namespace: dict[str, Any]) -> str:
    """Run a block and return what it printed, with the last line of its traceback if it raised."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile(block.code, f"line {block.line}", "exec", flags, dont_inherit=True)
            answer = types.FunctionType(code, namespace)()
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:  # noqa: BLE001  shown as an interpreter shows it
            if block.shown is None:
                traceback.print_exc()
            printed.write("".join(traceback.format_exception_only(error)))
    return printed.getvalue()


def _run_commands(block: Block) -> list[Step]:
    """Run the commands of a block in one shell; this process follows it to its last directory."""
    parts = re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]
    commands = [part.partition("\n")[0] for part in parts]
    script = "".join(f"{command}\n__=$?; printf '\\0%s\\0' $__; (exit $__)\n" for command in commands)
    script += "pwd\n"
    finished = subprocess.run(
        ["/bin/bash", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    fields = finished.stdout.split("\0")
    os.chdir(fields[-1].rstrip("\n"))
    steps, line = [], block.line
    for part, output, status in zip(parts, fields[::2], fields[1::2], strict=False):
        command, _, shown = part.partition("\n")
        kept = "".join(row for row in output.splitlines(keepends=True) if not row.rstrip().endswith(" …"))
        steps.append(Step(command, line, shown, kept, int(status)))
        line += part.count("\n")
    return steps


if __name__ == "__main__":
    _blocks = [Block(**block) for block in json.load(sys.stdin)]
    json.dump([asdict(step) for step in asyncio.run(_run_blocks(_blocks))], sys.stdout)
