"""The numbers of all served runs in Prometheus' own types; the only file that knows its client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

import stabexp
from stabexp.boards.metrics import METRICS, Metric, Sample
from stabexp.boards.run_view import RunView
from stabexp.boards.shown_runs import ShownRuns

FRESH_SECONDS = 1.0
"""What was read this long ago is served again, so that many readers cost as much as one."""

_FAMILIES: dict[str, Callable[..., Family]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "info": InfoMetricFamily,
}


class RunCollector(Collector):
    """Reads what is new about the runs, at most once a second."""

    def __init__(self, shown: ShownRuns) -> None:
        self._shown = shown
        self._lock = threading.Lock()
        self._families: list[Family] = []
        self._read_at = float("-inf")
        self.runs: list[RunView] = []
        """Those served by the latest answer."""

    def collect(self) -> Iterable[Family]:
        with self._lock:
            if time.monotonic() - self._read_at >= FRESH_SECONDS:
                self.runs = self._shown.refresh()
                self._families = list(self._made())
                self._read_at = time.monotonic()
            return self._families

    def describe(self) -> Iterable[Family]:
        """Nothing: names are known without reading any run."""
        return ()

    def _made(self) -> Iterator[Family]:
        families = {name: _family(metric) for name, metric in METRICS.items()}
        for view in self.runs:
            for sample in view.samples():
                _add(families[sample.metric], sample, view.run_id)
        own = (
            Sample("stabexp_exporter", 1, {"version": stabexp.__version__}),
            Sample("stabexp_exporter_runs", len(self.runs)),
            Sample("stabexp_exporter_runs_left_out", self._shown.left_out),
        )
        for sample in own:
            _add(families[sample.metric], sample, "")
        for family in families.values():
            if family.samples:
                yield family


def encoded(collector: RunCollector, accept: str) -> tuple[bytes, str]:
    """Return the metrics as the asker accepts them, and their content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _family(metric: Metric) -> Family:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)


def _add(family: Family, sample: Sample, run_id: str) -> None:
    metric = METRICS[sample.metric]
    given = {"run": run_id, **sample.labels}
    labels = {name: given[name] for name in metric.labels}
    family.add_sample(metric.series, labels, sample.value)
