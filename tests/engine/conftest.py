"""Prepares the tests of the engine. Where there is no torch, those that need none run all the same."""

from importlib.util import find_spec

if find_spec("torch"):
    from tests.engine.engines import (
        exact_eight_bits,
        one_thread,
        random_folder,
        random_reference,
        random_runner,
        short_runner,
        small_checkpoint,
        small_reference,
        small_runner,
    )

    __all__ = [
        "exact_eight_bits",
        "one_thread",
        "random_folder",
        "random_reference",
        "random_runner",
        "short_runner",
        "small_checkpoint",
        "small_reference",
        "small_runner",
    ]
