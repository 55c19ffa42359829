"""Prepares the tests of the engine. Where there is no torch, those that need none run all the same."""

from importlib.util import find_spec

if find_spec("torch"):
    from tests.engine.engines import (  # noqa: F401  # fixtures
        exact_eight_bits,
        good_morning,
        no_pauses,
        one_thread,
        patience,
        plain_products,
        random_folder,
        random_reference,
        random_runner,
        runner,
        short_runner,
        small_checkpoint,
        small_reference,
        small_runner,
        threads,
    )
