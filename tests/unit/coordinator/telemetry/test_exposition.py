"""The text that Prometheus reads: whole, valid, and read back by this code's own reader."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from chronicle.errors import InvalidInput
from coordinator.telemetry.exposition import parsed, shown
from coordinator.telemetry.instruments import CATALOGUE, INSTRUMENTS
from coordinator.telemetry.recorder import Recorder, Series, Value
from coordinator.telemetry.snapshots import from_wire, to_wire
from podium.errors import PodiumError

LABELS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=8)


@st.composite
def snapshots(draw: st.DrawFn) -> dict[Series, Value]:
    recorder = Recorder()
    for instrument in draw(st.lists(st.sampled_from(INSTRUMENTS), max_size=20)):
        labels = tuple(draw(LABELS) for _ in instrument.labels)
        if instrument.kind == "histogram":
            recorder.observe(instrument, labels, draw(st.floats(0, 1000)))
        else:
            recorder.add(instrument, labels, draw(st.integers(0, 2**40)))
    return recorder.sums()


@given(snapshots())
@settings(max_examples=25)
def test_a_snapshot_survives_its_text_and_the_wire(sums: dict[Series, Value]) -> None:
    text, content_type = shown(sums, None)
    assert content_type.startswith("text/plain; version=")
    assert parsed(text.decode()) == sums
    assert from_wire(json.loads(json.dumps(to_wire(sums)))) == sums


def test_open_metrics_is_given_to_those_who_prefer_it() -> None:
    recorder = Recorder()
    for instrument in INSTRUMENTS:
        labels = ("x",) * len(instrument.labels)
        if instrument.kind == "histogram":
            recorder.observe(instrument, labels, 0.2)
        else:
            recorder.add(instrument, labels, 2)
    accept = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    text, content_type = shown(recorder.sums(), accept)
    assert content_type.startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics_families(text.decode())}  # type: ignore[no-untyped-call]
    assert set(families) == {instrument.name.removesuffix("_total") for instrument in INSTRUMENTS}
    assert all(family.samples and family.documentation for family in families.values())


def test_an_empty_snapshot_has_the_help_of_every_metric() -> None:
    text, _ = shown({}, "text/plain")
    assert len(list(text_families(text.decode()))) == len(INSTRUMENTS)


def test_what_the_catalogue_does_not_know_is_left_out() -> None:
    odd: dict[Series, Value] = {
        ("podium_of_a_later_version", ()): 1,
        ("podium_tokens_total", ("one label too few",)): 1,
        ("podium_tokens_total", ("hello", "default")): [1.0, 2.0],
        ("podium_commit_duration_seconds", ("hello", "default")): [1.0, 2.0],
        ("podium_hosts", ("warm",)): 3,
    }
    text, _ = shown(odd, None)
    assert parsed(text.decode()) == {("podium_hosts", ("warm",)): 3}


@pytest.mark.parametrize("text", ["podium_hosts{status=", "podium_hosts 3\n", "podium_hosts{status='x'} three\n"])
def test_an_answer_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PodiumError, match="Prometheus"):
        parsed(text)


@pytest.mark.parametrize("wire", [3, None, [[1]], [["name", 5, 1]]])
def test_a_wire_that_is_none_is_refused(wire: object) -> None:
    with pytest.raises(InvalidInput):
        from_wire(wire)


def test_names_follow_the_conventions_of_prometheus() -> None:
    assert len(CATALOGUE) == len(INSTRUMENTS)
    for instrument in INSTRUMENTS:
        assert re.fullmatch(r"podium_[a-z][a-z_]*[a-z]", instrument.name)
        assert instrument.name.endswith("_total") == (instrument.kind == "counter")
        assert (instrument.kind == "histogram") == bool(instrument.bounds)
        assert list(instrument.bounds) == sorted(set(instrument.bounds))
        assert instrument.help.endswith(".")
        assert "key" not in instrument.labels
        if "duration" in instrument.name or "lag" in instrument.name:
            assert instrument.name.endswith("_seconds")
