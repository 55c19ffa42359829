"""The checkpoints that tutti knows by name, which `tutti models` lists. Any other Whisper checkpoint works too."""

from dataclasses import dataclass
from difflib import get_close_matches

EMBEDDED_MODEL = "tutti-base"
"""The name of the checkpoint that the package contains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A published checkpoint and its short names."""

    name: str
    """The value of `EngineConfig.model` that selects it."""
    n_parameters_m: int
    """The number of the model's parameters, in millions."""
    about: str
    """One sentence on the languages it transcribes and the hardware it needs."""
    is_english: bool = False
    """Whether the model was trained on English only, although its vocabulary names other languages."""
    can_translate: bool = True
    """Whether the model was trained to translate. Its vocabulary has a token for it in any case."""


KNOWN_MODELS = (
    KnownModel(
        name=EMBEDDED_MODEL,
        n_parameters_m=73,
        about="Comes with tutti: OpenAI's base, adapted to windows as long as their audio, in 4 bits.",
    ),
    KnownModel(
        name="openai/whisper-tiny",
        n_parameters_m=39,
        about="The smallest multilingual model: live on any laptop, weak with names.",
    ),
    KnownModel(name="openai/whisper-tiny.en", n_parameters_m=39, about="English only, and better at it than tiny."),
    KnownModel(name="openai/whisper-base", n_parameters_m=74, about="Multilingual, and still live on a laptop CPU."),
    KnownModel(name="openai/whisper-base.en", n_parameters_m=74, about="English only, and better at it than base."),
    KnownModel(
        name="openai/whisper-small",
        n_parameters_m=244,
        about="Multilingual, with good accuracy for everyday speech; needs a GPU or a fast CPU.",
    ),
    KnownModel(
        name="openai/whisper-small.en",
        n_parameters_m=244,
        about="English only, and slightly better at it than small.",
    ),
    KnownModel(
        name="openai/whisper-medium",
        n_parameters_m=769,
        about="Multilingual, for a GPU; large-v3-turbo is faster and usually better.",
    ),
    KnownModel(name="openai/whisper-medium.en", n_parameters_m=769, about="English only, for a GPU."),
    KnownModel(
        name="openai/whisper-large-v2",
        n_parameters_m=1550,
        about="The best multilingual model before large-v3, for a GPU.",
    ),
    KnownModel(
        name="openai/whisper-large-v3",
        n_parameters_m=1550,
        about="The most accurate multilingual model, for a GPU; it also translates.",
    ),
    KnownModel(
        name="openai/whisper-large-v3-turbo",
        n_parameters_m=809,
        about="Nearly as accurate as large-v3, with much faster decoding; it does not translate.",
        can_translate=False,
    ),
    KnownModel(
        name="distil-whisper/distil-small.en",
        n_parameters_m=166,
        about="English only, distilled from small: fast on a CPU.",
    ),
    KnownModel(
        name="distil-whisper/distil-medium.en",
        n_parameters_m=394,
        about="English only, distilled from medium: fast on a small GPU.",
    ),
    KnownModel(
        name="distil-whisper/distil-large-v3",
        n_parameters_m=756,
        about="English, distilled from large-v3: only two decoder layers.",
        is_english=True,
        can_translate=False,
    ),
    KnownModel(
        name="distil-whisper/distil-large-v3.5",
        n_parameters_m=756,
        about="English, as distil-large-v3, distilled with more data.",
        is_english=True,
        can_translate=False,
    ),
)
"""The known checkpoints, in the order in which `tutti models` lists them."""

SHORT_NAMES = {
    short: model.name
    for model in KNOWN_MODELS[1:]
    for repository in [model.name.partition("/")[2]]
    for short in (repository, repository.removeprefix("whisper-"))
} | {
    # As in OpenAI's package.
    "large": "openai/whisper-large-v3",
    "turbo": "openai/whisper-large-v3-turbo",
    "whisper-turbo": "openai/whisper-large-v3-turbo",
}
"""The full names of known checkpoints by the names that people type: without their owner, and without `whisper-`."""


def full_name(name: str) -> str:
    """The name on the hub that a short name such as `turbo` or `base@main` stands for; any other name as it is."""
    short, at, revision = name.partition("@")
    return SHORT_NAMES.get(short, short) + at + revision


def short_names(name: str) -> tuple[str, ...]:
    """The short names of a known checkpoint."""
    return tuple(short for short, full in SHORT_NAMES.items() if full == name)


def similar_names(name: str) -> str:
    """The end of an error about an unknown name: "; did you mean" and the most similar names, or nothing."""
    known = [*SHORT_NAMES, *(model.name for model in KNOWN_MODELS)]
    similar = get_close_matches(name.partition("@")[0].lower(), known, n=2, cutoff=0.75)
    return f"; did you mean {' or '.join(similar)}?" if similar else ""


def known_model(name: str) -> KnownModel | None:
    """The known checkpoint with this name, at any revision; `None` if there is none."""
    return next((model for model in KNOWN_MODELS if model.name == name.partition("@")[0]), None)
