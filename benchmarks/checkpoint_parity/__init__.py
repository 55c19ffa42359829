"""Parts of `benchmarks.parity`."""
