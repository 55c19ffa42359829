"""Starts WhisperLive on loopback, in its environment.

python whisperlive_server.py PORT CT2_FOLDER MAX_CLIENTS [batch]
"""

import sys

from checkpoint import make_multilingual, pad_windows_with_silence

ADMIT_ALL = {"batch_max_queue_wait_s": 1e6, "batch_max_admissions_per_s": 1e6}
"""So that it refuses no client because it is busy, as little as tutti does where servers are compared."""


def main() -> None:
    """Adapt its libraries and run its server."""
    port, ct2_folder, max_clients, *modes = sys.argv[1:]
    pad_windows_with_silence()
    from whisper_live.server import TranscriptionServer
    from whisper_live.transcriber.transcriber_faster_whisper import WhisperModel

    make_multilingual(WhisperModel)

    # Its own command line binds every interface. The other arguments are those that it uses for a custom model.
    TranscriptionServer().run(
        "127.0.0.1",
        port=int(port),
        backend="faster_whisper",
        faster_whisper_custom_model_path=ct2_folder,
        single_model=True,
        max_clients=int(max_clients),
        batch_enabled="batch" in modes,
        **ADMIT_ALL,
    )


if __name__ == "__main__":
    main()
