"""Sets the thresholds of a speaker network by calls of voices that it was trained on, and writes the packaged weights.

The calls of `benchmarks.diarization` have other voices.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.speakers.clustering import Thresholds
from app.speakers.embedder import EmbedderBatcher
from app.speakers.network import DEFAULT_WEIGHTS, NumpyNetwork
from benchmarks.diarization import diarized
from benchmarks.diarization_error import diarization_error
from benchmarks.synthetic_calls import Call, CallMaker

CANDIDATES = tuple(np.arange(0.1, 0.96, 0.05).round(2).tolist())
"""The values of `Thresholds.joins` that are tried."""


async def errors(network: NumpyNetwork, calls: Sequence[Call]) -> dict[float, float]:
    """The mean diarization error of each candidate. Embeddings are computed once for each call."""
    found = dict.fromkeys(CANDIDATES, 0.0)
    for call in calls:
        known: dict[bytes, np.ndarray[tuple[int], np.dtype[np.float32]]] = {}
        batcher = EmbedderBatcher(network)

        async def embed(stretches, known=known, batcher=batcher):  # type: ignore[no-untyped-def]
            new = [each for each in stretches if each.tobytes() not in known]
            for each, vector in zip(new, await batcher.embed(new) if new else (), strict=True):
                known[each.tobytes()] = vector
            return np.stack([known[each.tobytes()] for each in stretches])

        for joins in CANDIDATES:
            turns = await diarized(call.mono, embed, Thresholds(joins=joins, knows=1.0))
            found[joins] += diarization_error(call.turns, turns).rate / len(calls)
    return found


def main() -> None:
    """Try the candidates, and write the weights with the best."""
    parser = argparse.ArgumentParser(prog="python -m training.speakers.calibration", description=__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="speakers.npz of training.speakers.train")
    parser.add_argument("--out", type=Path, default=DEFAULT_WEIGHTS, help="where to write the weights with thresholds")
    parser.add_argument("--root", type=Path, default=Path("/"), help="where the synthesisers are")
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=75.0, help="length of a call")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    maker = CallMaker(args.root, args.seed, held_out=False)
    calls = [maker.make(str(number), args.seconds) for number in range(args.calls)]
    calls = [replace(call, channels=[call.mono]) for call in calls]
    found = asyncio.run(errors(NumpyNetwork(args.weights), calls))
    for joins, rate in found.items():
        print(f"joins {joins:.2f}: error {100 * rate:.1f} %")
    # The middle of all that are nearly as good as the best: the best alone may be best by chance.
    good = [joins for joins, rate in found.items() if rate <= min(found.values()) + 0.01]
    joins = good[len(good) // 2]
    # Centroids of much speech are nearer to each other than single windows are.
    knows = min(0.95, joins + 0.1)
    with np.load(args.weights) as arrays:
        weights = {name: arrays[name] for name in arrays.files if name != "thresholds"}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(args.out, **weights, thresholds=np.array([joins, knows], np.float32))
    print(f"joins {joins}, knows {knows:.2f}: {args.out}, {args.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
