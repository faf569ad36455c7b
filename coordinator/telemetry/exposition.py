"""The text of metrics: as Prometheus reads it, and back. The one module that knows `prometheus_client`.

What a snapshot has beyond the catalogue, as that of a service of a later version, is left out.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

from coordinator.telemetry.instruments import CATALOGUE, INSTRUMENTS
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.metrics_core import Metric

    from coordinator.telemetry.recorder import Series, Value
    from podium.turn.telemetry import Instrument

__all__ = ["parsed", "shown"]


def shown(sums: Mapping[Series, Value], accept: str | None) -> tuple[bytes, str]:
    """Return the text of a snapshot, and its content type.

    Args:
        accept: the ``Accept`` header of the request: OpenMetrics if it prefers that, else the text format 0.0.4.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(sums))
    encode, content_type = choose_encoder(accept or "")
    return encode(registry), content_type


def parsed(text: str) -> dict[Series, Value]:
    """Return the snapshot that a text of the format 0.0.4 shows.

    Raises:
        PodiumError: the text is not one.
    """
    sums: dict[Series, Value] = {}
    try:
        for family in text_string_to_metric_families(text):
            for instrument in (CATALOGUE.get(family.name), CATALOGUE.get(f"{family.name}_total")):
                if instrument is not None:
                    _take(instrument, family.samples, sums)
    except (ValueError, KeyError) as error:
        raise PodiumError(f"the answer is not what Prometheus reads: {error}") from error
    return sums


class _Snapshot(Collector):
    def __init__(self, sums: Mapping[Series, Value]) -> None:
        self._sums = sums

    def collect(self) -> Iterable[Metric]:
        of_name: dict[str, list[tuple[tuple[str, ...], Value]]] = {}
        for (name, labels), value in self._sums.items():
            of_name.setdefault(name, []).append((labels, value))
        for instrument in INSTRUMENTS:
            yield _family(instrument, of_name.get(instrument.name, ()))


def _family(instrument: Instrument, series: Iterable[tuple[tuple[str, ...], Value]]) -> Metric:
    fitting = [(labels, value) for labels, value in series if _fits(instrument, labels, value)]
    if instrument.kind == "histogram":
        histogram = HistogramMetricFamily(instrument.name, instrument.help, labels=instrument.labels)
        bounds = [*map(repr, instrument.bounds), "+Inf"]
        for labels, value in fitting:
            total, *counts = cast("list[float]", value)
            histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        return histogram
    kind = CounterMetricFamily if instrument.kind == "counter" else GaugeMetricFamily
    family = kind(instrument.name, instrument.help, labels=instrument.labels)
    for labels, value in fitting:
        family.add_metric(labels, cast("float", value))
    return family


def _fits(instrument: Instrument, labels: tuple[str, ...], value: Value) -> bool:
    size = len(value) if isinstance(value, list) else 0
    buckets = len(instrument.bounds) + 2 if instrument.kind == "histogram" else 0
    return len(labels) == len(instrument.labels) and size == buckets


def _take(instrument: Instrument, samples: Iterable[Any], sums: dict[Series, Value]) -> None:
    """Add the samples of an instrument to a snapshot."""
    for sample in samples:
        series = instrument.name, tuple(sample.labels[label] for label in instrument.labels)
        if instrument.kind != "histogram":
            sums[series] = sample.value
            continue
        value = cast("list[float]", sums.setdefault(series, [0.0] * (len(instrument.bounds) + 2)))
        if sample.name.endswith("_sum"):
            value[0] = sample.value
        elif sample.name.endswith("_bucket"):  # cumulative, in ascending order
            bounds = [*map(repr, instrument.bounds), "+Inf"]
            index = bounds.index(sample.labels["le"]) + 1
            value[index] = sample.value - sum(value[1:index])
