"""Adapts libraries that support only OpenAI's checkpoints to other checkpoints."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pad_windows_with_silence() -> None:
    """Make faster-whisper pad short windows as Whisper's own code does.

    Call this before the peer imports faster-whisper.

    faster-whisper pads spectrograms with zeros, which is louder than silence. This checkpoint was not trained on that.
    """
    import faster_whisper.audio
    import faster_whisper.transcribe

    faster_whisper.audio.pad_or_trim = faster_whisper.transcribe.pad_or_trim = pad_with_silence


def make_multilingual(model_class: Any) -> None:
    """Make models of faster-whisper multilingual: it recognises such models by the size of OpenAI's vocabulary."""
    build = model_class.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        self.model = _Multilingual(self.model)

    model_class.__init__ = init


def pad_with_silence(array: NDArray[np.float32], length: int = 3000, *, axis: int = -1) -> NDArray[np.float32]:
    """Cut or pad a spectrogram to `length` frames. The padding is as quiet as the quietest value."""
    array = array.take(np.arange(min(length, array.shape[axis])), axis=axis)
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return np.pad(array, widths, constant_values=array.min(initial=0.0))


class _Multilingual:
    """A CTranslate2 model that reports that it is multilingual."""

    is_multilingual = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
