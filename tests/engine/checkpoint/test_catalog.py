"""The checkpoints that are known by name."""

import pytest

from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL, full_name, known_model, similar_names


def test_a_revision_of_a_model_is_the_same_model() -> None:
    """What it can do does not depend on the commit."""
    assert known_model("openai/whisper-tiny@main") is known_model("openai/whisper-tiny")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("base", "openai/whisper-base"),
        ("base@main", "openai/whisper-base@main"),
        ("whisper-small", "openai/whisper-small"),
        ("small.en", "openai/whisper-small.en"),
        ("large", "openai/whisper-large-v3"),
        ("large-v3", "openai/whisper-large-v3"),
        ("turbo", "openai/whisper-large-v3-turbo"),
        ("large-v3-turbo", "openai/whisper-large-v3-turbo"),
        ("distil-large-v3.5", "distil-whisper/distil-large-v3.5"),
        ("openai/whisper-base", "openai/whisper-base"),
        (EMBEDDED_MODEL, EMBEDDED_MODEL),
        ("someone/base", "someone/base"),
    ],
)
def test_known_models_have_the_names_that_people_type(typed: str, name: str) -> None:
    assert full_name(typed) == name


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("trubo", "; did you mean turbo?"),
        ("Large-V3", "; did you mean large-v3"),
        ("openai/whisper-larg-v3", "; did you mean openai/whisper-large-v3"),
        ("someone/parakeet", ""),
    ],
)
def test_the_most_similar_names_are_named(typed: str, expected: str) -> None:
    assert similar_names(typed).startswith(expected) and bool(similar_names(typed)) == bool(expected)
