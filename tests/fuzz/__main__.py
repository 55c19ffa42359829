"""Sends damaged input for as long as it is given: `python -m tests.fuzz --minutes 60`.

It ends with status 1 at the first input that breaks something, after it has looked for the smallest one. The same
`--seed` gives the same inputs. Input that broke something is kept in `build/fuzz`, and tried first the next time.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.strategies import SearchStrategy

from tests.fuzz.frames import DAMAGED_REQUESTS, STREAMS, check_request, check_stream
from tests.fuzz.live_server import LiveServer, live_server
from tests.fuzz.messages import CONVERSATIONS, check_conversation
from tests.fuzz.recordings import DAMAGED, check_recording

FOLDER = "build/fuzz"
"""Where inputs are kept that broke something."""
EXAMPLES_PER_ROUND = 200
"""Inputs of one kind, before it is the next kind's turn."""


def targets(server: LiveServer) -> dict[str, tuple[SearchStrategy[Any], Callable[[Any], None]]]:
    """What is damaged: how input is made, and what must hold of it."""
    return {
        "recordings": (DAMAGED, check_recording),
        "messages": (CONVERSATIONS, partial(check_conversation, server)),
        "frames": (STREAMS, partial(check_stream, server)),
        "requests": (DAMAGED_REQUESTS, partial(check_request, server)),
    }


def run_round(strategy: SearchStrategy[Any], check: Callable[[Any], None], number: int, n_examples: int) -> int:
    """Try inputs. Returns how many; raises what the smallest input raises that breaks something."""
    n_tried = 0

    @seed(number)
    @settings(
        max_examples=n_examples,
        deadline=None,
        database=DirectoryBasedExampleDatabase(FOLDER),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(strategy)
    def attempt(example: Any) -> None:
        nonlocal n_tried
        n_tried += 1
        check(example)

    attempt()
    return n_tried


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0), default=1.0, show_default=True, help="How long to go on.")
@click.option("--seed", "first_seed", type=int, help="The first seed. Default: another one each time.")
@click.option("--only", multiple=True, help="recordings, messages, frames or requests. Default: all of them in turn.")
def main(minutes: float, first_seed: int | None, only: Iterable[str]) -> None:
    """Send damaged input to the decoders and to a live server."""
    number = int.from_bytes(os.urandom(4)) if first_seed is None else first_seed
    end_s = time.monotonic() + 60 * minutes
    n_tried: dict[str, int] = {}
    with live_server() as server:
        known = targets(server)
        names = list(only) or list(known)
        if unknown := set(names) - set(known):
            raise click.UsageError(f"--only: expected one of {', '.join(known)}, got {', '.join(sorted(unknown))}")
        print(f"seed {number}")
        for name in itertools.cycle(names):
            n_tried[name] = n_tried.get(name, 0) + run_round(*known[name], number, EXAMPLES_PER_ROUND)
            number += 1
            if time.monotonic() > end_s and len(n_tried) == len(names):
                break
    print(", ".join(f"{count} {name}" for name, count in n_tried.items()) + ": nothing broke")


if __name__ == "__main__":
    sys.exit(main())
