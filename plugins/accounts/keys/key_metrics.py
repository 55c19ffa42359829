"""Metrics of single keys: of a few keys by their names, of all others together, so that their number is bounded."""

from collections.abc import Callable, Sequence
from typing import get_args

from prometheus_client import CollectorRegistry, Counter

from tutti_server.app.service.account_service import Kind
from tutti_server.app.service.api_keys import ApiKey

OTHER = "other"
"""The label of all keys without a label of their own."""


class KeyMetrics:
    """Counts audio and sessions by the name of the key."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register the metrics. All keys are counted together until `name_first` is called."""
        self._max_names = 0
        self._keys: Callable[[], Sequence[ApiKey]] = lambda: ()
        self._names: set[str] = set()
        """The names that are labels. They stay, as Prometheus would take a series that ends for a restart."""
        self._audio_s_total = Counter(
            "tutti_key_audio_seconds", "Seconds of audio used, by key and kind", ["key", "kind"], registry=registry
        )
        self._uses_total = Counter(
            "tutti_key_uses", "Live sessions, files and jobs with audio, by key", ["key", "kind"], registry=registry
        )

    def name_first(self, max_names: int, keys: Callable[[], Sequence[ApiKey]]) -> None:
        """Let the first keys have their names as labels, so that all gateways choose the same."""
        self._max_names, self._keys = max_names, keys

    def begin_series(self) -> None:
        """Begin the series of all labels at 0: one that began with its first use would hide that from `increase()`."""
        if len(self._names) < self._max_names:
            for key in self._keys()[: self._max_names]:
                self._label(key)
        for label in (*self._names, OTHER):
            for kind in get_args(Kind):
                self._audio_s_total.labels(label, kind)
                self._uses_total.labels(label, kind)

    def note(self, key: ApiKey | None, kind: str, audio_s: float, is_new: bool) -> None:
        """Count audio that one session, file or job has used since the last call; `is_new` in its first one."""
        label = self._label(key)
        self._audio_s_total.labels(label, kind).inc(audio_s)
        self._uses_total.labels(label, kind).inc(is_new)

    def _label(self, key: ApiKey | None) -> str:
        if key is None:
            return OTHER
        if key.name not in self._names and len(self._names) < self._max_names:
            first = {each.name for each in self._keys()[: self._max_names]}
            if key.name in first:
                self._names.add(key.name)
        return key.name if key.name in self._names else OTHER
