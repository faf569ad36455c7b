"""What the distribution consists of, and which package does which job in its code."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
CODE: Final = ("chronicle", "podium", "coordinator")
JOBS: Final = {  # C.1-C.7
    "ray": {"ray.init", "ray.remote"},  # the processes of agents, on one machine or more
    "pydantic": {"pydantic.BaseModel"},  # what comes from outside is checked
    "jsonpatch": {"jsonpatch.apply_patch"},  # a client follows a state
    "fsspec": {"fsspec.core.url_to_fs", "fsspec.spec.AbstractFileSystem"},  # stores at URLs; workspaces for others
    "pyfuse3": {"pyfuse3.init", "pyfuse3.main", "pyfuse3.Operations"},  # a mount without the kernel's own protocol
    "httpx": {"httpx.AsyncClient"},  # the client of a gateway
    "pytest": {"pytest.raises", "pytest.mark.parametrize"},  # the contracts that every store passes
}


def _is_of_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _used(tree: ast.AST) -> set[str]:
    """Return the names of other packages that a module's code uses, as they are in those packages."""
    bound: dict[str, str] = {}
    used: set[str] = set()
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        match node:
            case ast.Import(names=names):
                bound |= {name.asname or name.name.partition(".")[0]: name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                bound |= {name.asname or name.name: f"{module}.{name.name}" for name in names}
            case ast.Attribute() | ast.Name():
                used.add(ast.unparse(node))
        if not _is_of_type_checkers(node):
            nodes.extend(ast.iter_child_nodes(node))
    found = set[str]()
    for name in used:
        first, dot, rest = name.partition(".")
        if first in bound:
            found.add(f"{bound[first]}{dot}{rest}")
    return found


@cache
def used_in_code() -> frozenset[str]:
    """Return the names of other packages that the code of the distribution uses."""
    imports = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(JOBS)})\b", re.MULTILINE)
    texts = (file.read_text(encoding="utf-8") for part in CODE for file in (ROOT / part).rglob("*.py"))
    return frozenset().union(*(_used(ast.parse(text)) for text in texts if imports.search(text)))


@pytest.mark.parametrize("package", JOBS)
def test_a_package_does_its_job_in_the_code(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = [
        *project["dependencies"],
        *(name for names in project["optional-dependencies"].values() for name in names),
    ]
    assert package in {re.split(r"[\[><=~! ]", name)[0] for name in required}
    assert JOBS[package] <= used_in_code()


@pytest.mark.parametrize("name", ["pyproject.toml", "README.md", *CODE, "examples", "tests"])  # C.8-C.11
def test_the_distribution_has_a_place_for_each_part(name: str) -> None:
    place = ROOT / name
    assert place.read_text(encoding="utf-8").strip() if place.suffix else [*place.rglob("*.py")]
