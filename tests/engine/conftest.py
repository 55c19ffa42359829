"""Prepares the tests of the engine. Where there is no torch, those that need none run all the same."""

from importlib.util import find_spec

if find_spec("torch"):
    from tests.engine.engines import (
        demo,
        demo_reference,
        demo_runner,
        exact_eight_bits,
        one_thread,
        random_folder,
        random_reference,
        random_runner,
        short_runner,
    )

    __all__ = [
        "demo",
        "demo_reference",
        "demo_runner",
        "exact_eight_bits",
        "one_thread",
        "random_folder",
        "random_reference",
        "random_runner",
        "short_runner",
    ]
