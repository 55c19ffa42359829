"""Reads the checkpoints of OpenAI's own package: a `.pt` file with sizes and weights. It holds no tokens.

Source of the format: openai/whisper, whisper/__init__.py, `load_model`, and whisper/model.py.
"""

from pathlib import Path
from typing import Any

from tutti_server.engine.checkpoint import openai
from tutti_server.engine.checkpoint.contents import Contents, Weight
from tutti_server.engine.checkpoint.transformers_folder import named_tensors, of_tensor, unpickle
from tutti_server.engine.errors import CheckpointError


def read_file(file: Path) -> Contents:
    """Read all but the weights. The tokens are those of OpenAI's vocabulary of this size.

    Raises:
        CheckpointError: the file is broken, holds other things, or has a vocabulary of its own.
    """
    weights, dims = _read(file)
    config = openai.sizes(file, weights, *(dims.get(f"n_{side}_head", 0) for side in ("audio", "text")))
    tokenizer = openai.tokenizer(file, config["vocab_size"])
    # They are read again when they are loaded: kept, they would be in memory beside the model.
    return Contents(config, openai.defaults(config, tokenizer), tokenizer, lambda: _read(file)[0])


def _read(file: Path) -> tuple[dict[str, Weight], dict[str, Any]]:
    content = unpickle(file)
    if not isinstance(content, dict) or not {"dims", "model_state_dict"} <= content.keys():
        got = ", ".join(sorted(map(str, content))[:3]) if isinstance(content, dict) else type(content).__name__
        raise CheckpointError(f"{file}: expected dims and model_state_dict, as OpenAI's package writes, got {got}")
    tensors = named_tensors(content["model_state_dict"], file)
    weights = {openai.published_name(name): of_tensor(tensor) for name, tensor in tensors.items()}
    return weights, content["dims"] if isinstance(content["dims"], dict) else {}
