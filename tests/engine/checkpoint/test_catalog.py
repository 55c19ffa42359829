"""The checkpoints that are known by name."""

from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL, KNOWN_MODELS, known_model


def test_the_embedded_model_is_listed_first() -> None:
    assert KNOWN_MODELS[0].name == EMBEDDED_MODEL


def test_a_model_is_found_by_its_name() -> None:
    """Names are unique. Other checkpoints are not known."""
    assert all(known_model(model.name) is model for model in KNOWN_MODELS)
    assert known_model("openai/whisper-none-such") is None


def test_a_revision_of_a_model_is_the_same_model() -> None:
    """What it can do does not depend on the commit."""
    assert known_model("openai/whisper-tiny@main") is known_model("openai/whisper-tiny")


def test_english_models_are_marked() -> None:
    """Names that end in `.en` need no mark, because their vocabulary has no other languages."""
    marked = {model.name for model in KNOWN_MODELS if model.is_english}
    assert marked == {"distil-whisper/distil-large-v3"}
