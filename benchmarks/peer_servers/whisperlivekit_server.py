"""WhisperLiveKit on loopback: `python whisperlivekit_server.py FOLDER ARGUMENTS`, in its environment.

What follows the folder of the checkpoint goes to `whisperlivekit-server`.
"""

import sys
from pathlib import Path

from checkpoint import alignment_heads, make_multilingual, pad_windows_with_silence, read_vocabulary


def main() -> None:
    folder = Path(sys.argv[1])
    sys.argv[1:] = [*sys.argv[2:], "--custom-alignment-heads", alignment_heads(folder)]
    pad_windows_with_silence()
    from faster_whisper import WhisperModel

    make_multilingual(WhisperModel)
    tell_whisper(folder)
    from whisperlivekit.basic_server import main as serve

    serve()


def tell_whisper(folder: Path) -> None:
    """Give its copy of openai-whisper the checkpoint's vocabulary: it brings OpenAI's, and counts languages by size."""
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
