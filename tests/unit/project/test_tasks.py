"""Tasks belong to a task group or to an owner of `podium.tasks`; the few other places have a reason."""

import ast
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_PLACES = {
    "podium/tasks.py": 2,  # the owners and the waits that all others use
    "podium/testing/simulator.py": 1,  # its loop does not run yet
    "podium/blocking.py": 1,  # outlives a cancellation of its turn, and even one of the wait for its end
    "coordinator/host/delivery.py": 1,  # starts a server in an empty context, not in that of its caller
}


def _makes_bare_task(call: ast.Call) -> bool:
    """Return whether a call makes a task outside of a group, of which the name ends with ``tasks`` or ``group``."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in {"create_task", "ensure_future"}
    if not isinstance(function, ast.Attribute) or function.attr not in {"create_task", "ensure_future"}:
        return False
    owner = ast.unparse(function.value).rpartition(".")[2]
    return function.attr == "ensure_future" or owner.lstrip("_") not in {"tasks", "group"}


def test_tasks_belong_to_groups_or_owners() -> None:
    found: Counter[str] = Counter()
    for package in ("chronicle", "podium", "coordinator"):
        for file in (_ROOT / package).rglob("*.py"):
            text = file.read_text()
            if "create_task" not in text and "ensure_future" not in text:
                continue
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            if bare := sum(map(_makes_bare_task, calls)):
                found[str(file.relative_to(_ROOT))] = bare
    assert found == _PLACES
    assert sum(_PLACES.values()) <= 5
