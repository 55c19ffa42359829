"""Parts of `benchmarks.detectors`: audio whose speech is known, and how a detector's decisions are scored."""
