"""Measures how long the speaker network takes for stretches of speech: `python -m benchmarks.speaker_network`."""

import time

import click
import numpy as np

from app.speakers.network import NumpyNetwork
from engine.api import SAMPLE_RATE


@click.command(help=__doc__)
@click.option("--runs", default=30)
def main(runs: int) -> None:
    """Print the median and the worst time of a stretch, in milliseconds of this thread's processor time."""
    network = NumpyNetwork()
    for seconds in (1.5, 3.0):
        audio = np.random.default_rng(0).normal(0, 0.1, int(seconds * SAMPLE_RATE)).astype(np.float32)
        times_ms = []
        for _ in range(runs + 2):
            began = time.thread_time()
            network.embed([audio])
            times_ms.append((time.thread_time() - began) * 1000)
        click.echo(f"{seconds} s: median {np.median(times_ms[2:]):.1f} ms, worst {max(times_ms[2:]):.1f} ms")


if __name__ == "__main__":
    main()
