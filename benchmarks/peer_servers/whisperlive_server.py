"""WhisperLive on loopback: `python whisperlive_server.py PORT CT2_FOLDER MAX_CLIENTS [batch]`, in its environment."""

import sys

from checkpoint import make_multilingual, pad_windows_with_silence


def main() -> None:
    port, ct2_folder, max_clients, *mode = sys.argv[1:]
    pad_windows_with_silence()
    from whisper_live.server import TranscriptionServer
    from whisper_live.transcriber.transcriber_faster_whisper import WhisperModel

    make_multilingual(WhisperModel)

    # Its own command line binds every interface; the rest is as that has it for a model of one's own.
    TranscriptionServer().run(
        "127.0.0.1",
        port=int(port),
        backend="faster_whisper",
        faster_whisper_custom_model_path=ct2_folder,
        single_model=True,
        max_clients=int(max_clients),
        batch_enabled=mode == ["batch"],
    )


if __name__ == "__main__":
    main()
