"""Describes a model by its checkpoint, without loading its weights."""

import re

from tutti_server.engine.api import ModelCard
from tutti_server.engine.checkpoint.catalog import full_name, known_model, short_names
from tutti_server.engine.checkpoint.checkpoint import Checkpoint, local_path
from tutti_server.engine.config import EngineConfig
from tutti_server.engine.model.random_weights import open_checkpoint
from tutti_server.engine.validation import tasks

_IN_HUB_CACHE = re.compile(r"/models--(?P<owner>[^/]+?)--(?P<name>[^/]+)/snapshots/[^/]+$")
"""The end of the path of a model in the cache of huggingface_hub."""


def names_of(model: str) -> tuple[str, ...]:
    """The names by which clients may choose a model of the command line; the first one is shown."""
    if local_path(model):
        return (_public_name(model),)
    return tuple(dict.fromkeys((full_name(model), model, *short_names(full_name(model)))))


def read_card(config: EngineConfig) -> ModelCard:
    """Describe the model of a configuration; see `read_checkpoint` for the errors."""
    return card_of(open_checkpoint(config.model), config.served_names)


def card_of(checkpoint: Checkpoint, served_names: tuple[str, ...] = ()) -> ModelCard:
    """Describe a checkpoint's model. Without `served_names` it has the checkpoint's name without its folder."""
    generation = checkpoint.generation
    known = known_model(checkpoint.name)
    is_english = not generation.is_multilingual or (known is not None and known.is_english)
    can_translate = known is None or known.can_translate
    return ModelCard(
        name=served_names[0] if served_names else _public_name(checkpoint.name),
        aliases=served_names[1:],
        is_multilingual=generation.is_multilingual,
        languages=("en",) if is_english else tuple(generation.languages),
        tasks=tuple(task for task in tasks(checkpoint) if task != "translate" or can_translate),
        adaptive_endpointing=generation.adaptive_endpointing,
    )


def _public_name(name: str) -> str:
    """What clients see of a model's name: the last part of a folder or file, as its place is the operator's affair.

    A folder in the cache of the hub, which is named by its commit, has the name that it has on the hub.
    """
    path = local_path(name)
    if path is None:
        return name
    if cached := _IN_HUB_CACHE.search(str(path.resolve())):
        return f"{cached['owner']}/{cached['name']}"
    # `.` and `..` have no name of their own; that of a link is the operator's choice.
    return (path if path.name.strip(".") else path.resolve()).name
