"""The dashboard of `docs/grafana.json` and the queries of `docs/observability.md`: they ask for what a home exports."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.telemetry.exposition import shown
from coordinator.telemetry.instruments import INSTRUMENTS
from coordinator.telemetry.recorder import Recorder

DOCS: Final = Path(__file__).parents[4] / "docs"
DASHBOARD: Final[dict[str, Any]] = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES: Final = DASHBOARD["templating"]["list"]

_SELECTOR: Final = re.compile(r"\b([a-z][a-z0-9_]*_[a-z0-9_]+)(\{[^}]*\})?")
_MATCHER: Final = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_BY: Final = re.compile(r"\bby \(([^)]*)\)")
_FUNCTIONS: Final = frozenset({"histogram_quantile", "label_values"})


@cache
def exported() -> dict[str, frozenset[str]]:
    """Return the names of a home's series, with their labels."""
    recorder = Recorder()
    for instrument in INSTRUMENTS:
        labels = ("x",) * len(instrument.labels)
        if instrument.kind == "histogram":
            recorder.observe(instrument, labels, 0.2)
        else:
            recorder.add(instrument, labels, 2)
    text, _ = shown(recorder.sums(), None)
    families = text_string_to_metric_families(text.decode())
    return {sample.name: frozenset(sample.labels) for family in families for sample in family.samples}


def problems(query: str, legend: str = "") -> list[str]:
    """Return what a query, or the legend of its series, names that a home does not export."""
    found: list[str] = []
    known: list[frozenset[str]] = []
    without_lists = _BY.sub("", re.sub(r"\[[^]]*\]", "", query))
    for name, matchers in _SELECTOR.findall(without_lists):
        if name in _FUNCTIONS or f'"{name}' in query:
            continue
        labels = exported().get(name)
        if labels is None:
            found.append(f"no series {name}")
            continue
        known.append(labels)
        texts_left_out = re.sub(r'"[^"]*"', "", matchers)
        found += [f"{name} has no label {label}" for label in _MATCHER.findall(texts_left_out) if label not in labels]
    common = frozenset.intersection(*known) if known else frozenset[str]()
    grouped = {label.strip() for names in _BY.findall(query) for label in names.split(",")}
    found += [f"no series of the query has the label {label}" for label in sorted(grouped - common)]
    legends = set(re.findall(r"\{\{(\w+)\}\}", legend))
    found += [f"the legend has the label {label}" for label in sorted(legends - (grouped or common))]
    return found if known else [*found, "it asks for nothing of a home"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_what_is_exported(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        assert problems(target["expr"], target["legendFormat"]) == []
        assert set(re.findall(r"\$(\w+)", target["expr"])) <= {"__rate_interval", *(each["name"] for each in VARIABLES)}


def test_every_metric_is_in_a_panel() -> None:
    queries = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert [instrument.name for instrument in INSTRUMENTS if instrument.name not in queries] == []


def test_variables_are_labels() -> None:
    for variable in VARIABLES[1:]:
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        assert variable["query"]["query"] == variable["definition"]
        assert label in exported()[name]


def test_panels_have_places_of_their_own() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        squares = {(place["x"] + right, place["y"] + down) for right in range(place["w"]) for down in range(place["h"])}
        assert not squares & taken
        assert place["x"] + place["w"] <= 24
        taken |= squares


def test_the_documented_queries_ask_for_what_is_exported() -> None:
    page = (DOCS / "observability.md").read_text(encoding="utf-8").partition("### Queries")[2].partition("\n## ")[0]
    queries = [query.replace("\\|", "|") for query in re.findall(r"\| `([^`]+)` \|$", page, re.MULTILINE)]
    assert len(queries) > 10
    own = [query.replace('up{job="podium"} == 0', "podium_service_up") for query in queries]  # Prometheus makes `up`
    assert {query: found for query in own if (found := problems(query))} == {}


@pytest.mark.parametrize(
    ("query", "legend"),
    [
        ("podium_turn_total", ""),
        ("podium_turn_duration_seconds", ""),
        ('podium_hosts{state="warm"}', ""),
        ('podium_turns_total{outcome=~"failed", host="a"}', ""),
        ("sum by (profile) (rate(podium_turns_total[5m]))", ""),
        ("sum by (outcome) (rate(podium_turns_total[5m]))", "{{cause}}"),
        ("histogram_quantile(0.9, sum by (le) (rate(podium_turn_duration_seconds_sum[5m])))", ""),
        ("up", ""),
    ],
)
def test_what_is_not_exported_is_found(query: str, legend: str) -> None:
    assert problems(query, legend)
