"""Render the Helm chart of ``k8s/chart``, and keep ``k8s/rendered`` as it is rendered.

``python -m tools.chart`` writes the files of ``k8s/rendered``; with ``--check`` it compares them, and exits with 1 if
they differ. Helm is a library here (the extra ``k8s``): there is no cluster, and `lookup` finds nothing.
"""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import helm_python
import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[1]
CHART: Final = ROOT / "k8s" / "chart"
CASES: Final = sorted((CHART / "ci").glob("*.values.yaml"))
"""Values to render and check, a file for each."""
RELEASE: Final = "podium"
NAMESPACE: Final = "podium"
_RENDERED: Final = {"trial": "trial.yaml", "kubectl": "production.yaml"}
"""The cases whose manifests ``kubectl apply -f`` takes, and their files in ``k8s/rendered``."""


def values_of(case: Path) -> dict[str, Any]:
    """Return the values of a case."""
    found: dict[str, Any] = yaml.safe_load(case.read_text(encoding="utf-8"))
    return found


def manifests(values: Mapping[str, Any], *, tests: bool = True) -> str:
    """Render the chart to one text of YAML documents, in the order of the templates' names.

    Args:
        values: the values.
        tests: whether the pods of ``helm test`` are in it.

    Raises:
        helm_python.HelmError: it cannot be rendered with these values.
    """
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(dict(values))
        rendered = chart.render(dict(values), name=RELEASE, namespace=NAMESPACE, is_install=True)
    texts = [
        text.strip()
        for name, text in sorted(rendered.items())
        if not name.endswith(".txt") and (tests or "/tests/" not in name)
    ]
    joined = "\n---\n".join(text.removeprefix("---").strip() for text in texts if text.strip("-\n "))
    return re.sub(r"\n[ \t]+(?=\n)", "", joined) + "\n"  # lines of templates that rendered to nothing


def objects(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Render the chart to the objects of Kubernetes; raises as `manifests`."""
    return [found for found in yaml.safe_load_all(manifests(values)) if found]


def main() -> None:
    """Write or check the rendered manifests."""
    check = "--check" in sys.argv[1:]
    for case, name in _RENDERED.items():
        path = ROOT / "k8s" / "rendered" / name
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        source = f"k8s/chart/ci/{case}.values.yaml"
        text = f"# Made from {source} by `make docs`; k8s/README.md says what to change.\n" + manifests(
            values_of(ROOT / source), tests=False
        )
        if not check:
            path.write_text(text, encoding="utf-8")
        elif there != text:
            lines = difflib.unified_diff(there.splitlines(), text.splitlines(), str(path), "as rendered", lineterm="")
            sys.exit("\n".join([*lines, f"{path.relative_to(ROOT)} is not what the chart renders to: make docs"]))
    print(f"the manifests of k8s/rendered are {'as rendered' if check else 'written'}")


if __name__ == "__main__":
    main()
