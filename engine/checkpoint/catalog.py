"""The checkpoints that are known by name, for `tutti models`. Any other Whisper checkpoint works as well."""

from dataclasses import dataclass

EMBEDDED_MODEL = "tutti-demo"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A published checkpoint."""

    name: str
    """What to write for `EngineConfig.model`."""
    n_parameters_m: int
    """Millions of parameters."""
    about: str
    """One sentence on what it hears and what it costs."""
    is_english: bool = False
    """It was trained on English alone, though its vocabulary names other languages."""
    can_translate: bool = True
    """False where the training left translation out, though the vocabulary has a token for it."""


KNOWN_MODELS = (
    KnownModel(
        EMBEDDED_MODEL,
        11,
        "Ships with tutti for trying it out: synthetic English voices only, not people.",
        is_english=True,
        can_translate=False,
    ),
    KnownModel("openai/whisper-tiny", 39, "The smallest multilingual one: live on any laptop, rough with names."),
    KnownModel("openai/whisper-tiny.en", 39, "English only, better at it than tiny."),
    KnownModel("openai/whisper-base", 74, "Multilingual, still live on a laptop CPU."),
    KnownModel("openai/whisper-base.en", 74, "English only, better at it than base."),
    KnownModel("openai/whisper-small", 244, "Multilingual, good everyday accuracy; wants a GPU or a strong CPU."),
    KnownModel("openai/whisper-small.en", 244, "English only, slightly better at it than small."),
    KnownModel("openai/whisper-medium", 769, "Multilingual, for a GPU; large-v3-turbo is faster and mostly better."),
    KnownModel("openai/whisper-medium.en", 769, "English only, for a GPU."),
    KnownModel("openai/whisper-large-v2", 1550, "The former best multilingual one, for a GPU."),
    KnownModel("openai/whisper-large-v3", 1550, "The most accurate multilingual one, for a GPU; also translates."),
    KnownModel(
        "openai/whisper-large-v3-turbo",
        809,
        "Nearly large-v3 at a fraction of the decoding; no translation.",
        can_translate=False,
    ),
    KnownModel("distil-whisper/distil-small.en", 166, "English only, distilled from small: fast on a CPU."),
    KnownModel("distil-whisper/distil-medium.en", 394, "English only, distilled from medium: fast on a small GPU."),
    KnownModel(
        "distil-whisper/distil-large-v3",
        756,
        "English, distilled from large-v3: two decoder layers.",
        is_english=True,
        can_translate=False,
    ),
)


def known_model(name: str) -> KnownModel | None:
    """What is known of a checkpoint by this name; `None` of any other."""
    return next((model for model in KNOWN_MODELS if model.name == name), None)
