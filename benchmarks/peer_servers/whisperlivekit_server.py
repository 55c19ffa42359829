"""Starts WhisperLiveKit: `python whisperlivekit_server.py FOLDER ARGUMENTS`, in its environment.

FOLDER is the checkpoint. ARGUMENTS go to `whisperlivekit-server`.
"""

import sys
from pathlib import Path

from checkpoint import alignment_heads, make_multilingual, pad_windows_with_silence, read_vocabulary


def main() -> None:
    """Adapt its libraries and run its server."""
    folder = Path(sys.argv[1])
    sys.argv[1:] = [*sys.argv[2:], "--custom-alignment-heads", alignment_heads(folder)]
    pad_windows_with_silence()
    from faster_whisper import WhisperModel

    make_multilingual(WhisperModel)
    install_vocabulary(folder)
    from whisperlivekit.basic_server import main as serve

    serve()


def install_vocabulary(folder: Path) -> None:
    """Install the checkpoint's vocabulary in its copy of openai-whisper.

    The copy has OpenAI's vocabulary, and derives the number of languages from its size.
    """
    import tiktoken
    from whisperlivekit.whisper import tokenizer
    from whisperlivekit.whisper.model import Whisper

    ranks, special = read_vocabulary(folder)
    languages = [f"<|{code}|>" for code in tokenizer.LANGUAGES if f"<|{code}|>" in special]
    encoding = tiktoken.Encoding(
        name=folder.name,
        pat_str=tokenizer.get_encoding("multilingual")._pat_str,
        mergeable_ranks=ranks,
        special_tokens=special,
    )
    tokenizer.get_encoding = lambda name="multilingual", num_languages=99: encoding
    Whisper.is_multilingual = property(lambda model: True)
    Whisper.num_languages = property(lambda model: len(languages))


if __name__ == "__main__":
    main()
