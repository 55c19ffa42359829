"""Reads a server's `/metrics` and computes differences between two moments."""

from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

ENGINE = "engine"
"""The label of one of several engines."""


class Counters:
    """The metric samples of a server at one moment, by name and labels.

    Where there are several engines, their samples are added up too: the sum has no label `engine`. The difference of
    two moments is what happened in between. It has no meaning for gauges.
    """

    def __init__(self, samples: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> None:
        self._samples = samples

    @classmethod
    def parse(cls, text: str) -> "Counters":
        samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        totals: defaultdict[tuple[str, frozenset[tuple[str, str]]], float] = defaultdict(float)
        for (name, labels), value in samples.items():
            if each_engine := {item for item in labels if item[0] == ENGINE}:
                totals[name, labels - each_engine] += value
        return cls(samples | totals)

    def __sub__(self, earlier: "Counters") -> "Counters":
        return Counters({key: value - earlier._samples.get(key, 0.0) for key, value in self._samples.items()})

    def value(self, name: str, **labels: str) -> float:
        """The value of one sample, or 0 if there is none."""
        return self._samples.get((name, frozenset(labels.items())), 0.0)

    def engine_busy_s(self) -> dict[str, float]:
        """The seconds of encoder calls and decode steps of each engine, by its name; of one engine by an empty one."""
        names = {value for _, labels in self._samples for label, value in labels if label == ENGINE}
        labels: dict[str, dict[str, str]] = {name: {ENGINE: name} for name in sorted(names)} or {"": {}}
        return {
            name: sum(self.value(f"tutti_engine_{what}_seconds_sum", **each) for what in ("encode", "step"))
            for name, each in labels.items()
        }

    def mean(self, histogram: str, **labels: str) -> float | None:
        """The mean of a histogram, or `None` if it is empty."""
        n = self.value(histogram + "_count", **labels)
        return self.value(histogram + "_sum", **labels) / n if n else None

    def quantile(self, histogram: str, q: float, **labels: str) -> float | None:
        """A quantile of a histogram, interpolated between the edges of its bucket; `None` if the histogram is empty.

        A quantile above all finite edges is returned as the last of these edges.
        """
        wanted = set(labels.items())
        buckets = sorted(
            (float(dict(key)["le"]), value)
            for (name, key), value in self._samples.items()
            if name == histogram + "_bucket" and {item for item in key if item[0] != "le"} == wanted
        )
        if not buckets or not buckets[-1][1]:
            return None
        rank, edge, below = q * buckets[-1][1], 0.0, 0.0
        for upper, count in buckets:
            if count >= rank:
                return edge if upper == float("inf") else edge + (upper - edge) * (rank - below) / (count - below)
            edge, below = upper, count
        raise AssertionError("the last bucket holds everything")
