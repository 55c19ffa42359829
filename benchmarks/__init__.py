"""Measurements: `benchmarks.live` of the whole service, `benchmarks.offline` of its engine. See docs/results.md."""
