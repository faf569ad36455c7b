"""An agent that reviews a Python project and remembers what it found. No model is needed.

podium run examples/reviewer.py:ReviewerAgent --key mine --message "review /path/to/project" --message "TODOs"

It unpacks the project into its workspace, answers questions about it, keeps what it learnt in its state and rewrites
``report.md`` whenever it learnt something: every version of the report can be read later.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from reviewer_analysis import Place, Project, imports_of, largest_files, longest_functions, notes, survey
from reviewer_source import CannotReviewError, bring_in

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HELP = """\
I review Python projects. Ask me:
  review PATH            a directory, a .tar.gz or a .whl
  largest files          also: 20 largest files
  longest functions      also: 5 longest functions
  TODOs                  what the authors left to do
  imports of NAME        where a module is used
  report                 all I found so far; it is in report.md too
"""


class Finding(BaseModel):
    """The answer to one question."""

    title: str
    places: list[Place]


class ReviewerAgent(BaseAgent):
    """Reviews one project at a time."""

    idle_timeout_s = 10

    class State(DeltaState):
        _version = 1
        _entity_type = "reviewer"

        project: Project | None = None
        findings: dict[str, Finding] = {}  # by question, in its shortest form
        reviewed: int = 0  # projects, in all its life

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        reply = await ctx.send_message("")
        async for piece in self.answer(ctx, str(message.get("text", ""))):
            await reply.stream_token(piece)
        await reply.stream_token("", final=True)

    async def on_idle_timeout(self, ctx: AgentContext[State]) -> bool:
        return True

    async def answer(self, ctx: AgentContext[State], text: str) -> AsyncIterator[str]:
        """Do what a message asks for, and say it piece by piece."""
        state = ctx.state
        command, argument, count = understand(text)
        if command == "review":
            async for piece in self.review(state, argument):
                yield piece
        elif command == "help":
            yield HELP
        elif command == "":
            yield f"I do not know how to answer {shorten(text)!r}.\n" + HELP
        elif state.project is None:
            yield "I have no project yet. Say: review PATH, with a directory, a .tar.gz or a .whl.\n"
        elif command == "report":
            for line in render(state.project, state.findings).splitlines(keepends=True):
                yield line
            versions = await ctx.history("report.md")
            yield f"\n(report.md; its versions are kept: {len(versions)} so far)\n"
        else:
            # Reading and parsing block; a thread keeps the agent's loop free to stream and to be cancelled.
            finding = await asyncio.to_thread(find_out, command, argument, count)
            state.findings[f"{command} {argument}".strip()] = finding
            for line in describe(finding):
                yield line + "\n"
            write_report(state)

    async def review(self, state: State, argument: str) -> AsyncIterator[str]:
        """Bring a project in, look it over and begin its report."""
        if not argument:
            yield "Review what? Give me the path of a directory, a .tar.gz or a .whl.\n"
            return
        source = Path(argument).expanduser()
        yield f"Reading {source.name} ... "
        try:
            brought = await asyncio.to_thread(bring_in, source, project_dir())
        except CannotReviewError as problem:
            yield f"\nI cannot review it: {problem}.\n"
            return
        project = await asyncio.to_thread(survey, project_root(), source.name)
        # Nothing to save: assigned and changed values are committed with this turn.
        state.project = project
        state.findings.clear()
        state.reviewed += 1
        write_report(state)
        yield f"{brought.files} files.\n"
        if brought.left_out:
            yield f"I left out {brought.left_out} links and special files.\n"
        for line in overview(project):
            yield line + "\n"


# -- understanding -----------------------------------------------------------------------------------------------------


def understand(text: str) -> tuple[str, str, int]:
    """Return what a message asks for: the command ("" for none), its argument, and how many answers it wants."""
    said = text.strip()
    low = said.lower()
    number = re.search(r"\b(\d{1,3})\b", low)
    count = max(1, int(number[1])) if number else 10
    if found := re.match(r"(?:please\s+)?(?:review|look at|read|unpack)\b\s*(.*)", said, re.IGNORECASE | re.DOTALL):
        return "review", found[1].strip().strip("'\""), count
    if found := re.search(r"\bimport(?:s|ed)?\b(?:\s+(?:of|from))?\s*([\w.]*)", said, re.IGNORECASE):
        who = re.search(r"\bwhere is\s+([\w.]+)\s+imported", said, re.IGNORECASE)
        name = (who[1] if who else found[1]).strip(".")
        return ("imports of", name, count) if name else ("", "", count)
    for pattern, command in (
        (r"\b(largest|biggest)\b.*\bfiles?\b", "largest files"),
        (r"\b(longest|largest|biggest)\b.*\b(functions?|methods?)\b", "longest functions"),
        (r"\b(todos?|fixmes?)\b", "TODOs"),
        (r"\b(report|summary|overview)\b", "report"),
        (r"^$|\bhelp\b|^\?$", "help"),
    ):
        if re.search(pattern, low):
            return command, "", count
    return "", "", count


def find_out(command: str, argument: str, count: int) -> Finding:
    """Answer a question about the project in the workspace."""
    root = project_root()
    if command == "largest files":
        return Finding(title="Largest files", places=largest_files(root, count))
    if command == "longest functions":
        return Finding(title="Longest functions", places=longest_functions(root, count))
    if command == "TODOs":
        return Finding(title="Left to do", places=notes(root))
    return Finding(title=f"Imports of {argument}", places=imports_of(root, argument))


# -- telling -----------------------------------------------------------------------------------------------------------


def overview(project: Project) -> list[str]:
    """Say in a few lines what a project is."""
    if not project.modules:
        return [f"{project.source}: {project.files} files, none of them Python. I can still tell the largest files."]
    functions = sum(module.functions for module in project.modules.values())
    classes = sum(module.classes for module in project.modules.values())
    python = f"{len(project.modules)} Python files of {project.files}, {project.lines:,} lines"
    lines = [f"{project.source}: {python}, {functions} functions, {classes} classes."]
    broken = [(path, module.problem) for path, module in project.modules.items() if module.problem]
    lines += [f"I cannot parse {path}: {problem}" for path, problem in broken[:10]]
    if len(broken) > 10:
        lines.append(f"... and {len(broken) - 10} more.")
    return lines


def describe(finding: Finding) -> list[str]:
    """Say what was found, a line for each place."""
    if not finding.places:
        return [f"{finding.title}: none."]
    lines = [f"{finding.title}:"]
    for place in finding.places:
        where = f"{place.path}:{place.line}" if place.line else place.path
        lines.append(f"  {where}  {place.text}")
    return lines


def render(project: Project, findings: dict[str, Finding]) -> str:
    """Return the report as Markdown."""
    lines = [f"# Review of {project.source}", "", *overview(project)]
    for _, finding in sorted(findings.items()):  # a dict in the state has no order of its own
        lines += ["", f"## {finding.title}", ""]
        lines += [f"- `{place.path}{f':{place.line}' if place.line else ''}` {place.text}" for place in finding.places]
        if not finding.places:
            lines.append("None.")
    return "\n".join(lines) + "\n"


def write_report(state: ReviewerAgent.State) -> None:
    """Rewrite the report: the workspace keeps the version before."""
    if state.project is not None:
        report = workspace() / "report.md"
        report.write_text(render(state.project, state.findings), encoding="utf-8")


def workspace() -> Path:
    """The agent's own directory."""
    return Path(os.environ["AGENT_WORKSPACE"])


def project_dir() -> Path:
    """Where the project under review is brought."""
    return workspace() / "project"


def project_root() -> Path:
    """Where its files begin: archives often hold just one directory."""
    entries = list(project_dir().iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else project_dir()


def shorten(text: str) -> str:
    """A message as it can be repeated in an answer."""
    return text if len(text) <= 60 else text[:57] + "..."
