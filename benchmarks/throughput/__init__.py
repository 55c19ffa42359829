"""Parts of `benchmarks.engine_throughput`: what requests ask for, and the least time that they can take."""
