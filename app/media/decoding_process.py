"""The process that decodes uploaded files, as `python -m tutti_server.app.media.decoding_process FD` starts it.

Whoever uploads a file decides what FFmpeg does. So files are decoded by workers: processes with limits of memory and
processor time, which decode one file at a time and may be killed. This process has imported all that decoding needs,
and forks a worker in two milliseconds. `decoder_workers.py` is the other side.

A message on the socket `FD` asks for a worker. It comes with two descriptors:

1. the worker's socket. On it the worker receives JSON with the descriptor of a file, and answers with a `HEADER` and
   as many bytes as it says, again and again; then comes the next file;
2. the reading end of the liveness pipe. The worker is killed when the other end is closed, and so when the service
   dies.
"""

import importlib
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, NoReturn

from tutti_server.app.errors import MediaError
from tutti_server.app.media.notices import Notice

REQUEST_BYTES = 1000
MAX_MEMORY_MB = 512
"""The memory that a worker may take, in MB. Decoding takes a few; a header may ask for any amount."""
MAX_CPU_S = 20
"""The processor time for a piece of about ten seconds of audio, in seconds. It takes a hundredth of one."""


NICENESS = 5
"""Workers give way to the service and to the engine, which all others wait for, where no processor is free."""


class Kind(IntEnum):
    """Says what follows a header."""

    SAMPLES = 0
    """Float32 samples."""
    ANSWER = 1
    """What was asked of the file, in JSON. Nothing follows."""
    ERROR = 2
    """The message of a `MediaError`. Nothing follows."""
    DONE = 3
    """The file is decoded. The message has no bytes."""
    NOTICE = 4
    """The fields of a `Notice` in JSON. More follows."""


HEADER = struct.Struct("<BI")
"""The `Kind` of what follows, and its length in bytes."""


def serve(requests: socket.socket) -> None:
    """Fork a worker for every request, until the service closes the socket or dies."""
    workers: dict[int, int] = {}
    """The process of each worker, by its liveness pipe."""
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not requests:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _end(workers.pop(key.fd))
                    continue
                message, descriptors, _, _ = socket.recv_fds(requests, 1, 2)
                if not message:
                    for worker in workers.values():
                        _end(worker)
                    return
                if len(descriptors) == 2:
                    files, liveness_fd = descriptors
                    workers[liveness_fd] = _fork(files, inherited=(requests.fileno(), liveness_fd, *workers))
                    selector.register(liveness_fd, selectors.EVENT_READ)
                    os.close(files)
                else:
                    # This process may open no more files. The service finds its socket closed.
                    for descriptor in descriptors:
                        os.close(descriptor)


def _fork(files: int, inherited: Iterable[int] = ()) -> int:
    """Start a worker with its socket `files`. It closes the descriptors that are not its own. Returns its process."""
    worker = os.fork()
    if worker:
        return worker
    try:
        for descriptor in inherited:
            os.close(descriptor)
        _work(socket.socket(fileno=files))
    except OSError:
        # The service does not wait for the answer any more.
        pass
    except BaseException:
        # It goes no further than this: what follows is the work of the process that forked.
        traceback.print_exc()
    os._exit(0)


def _end(worker: int) -> None:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)


def _work(files: socket.socket) -> None:
    """Decode one file after another, until the service closes the socket."""
    _limit_memory()
    while True:
        message, descriptors, _, _ = socket.recv_fds(files, REQUEST_BYTES, 1)
        if not descriptors:
            return
        with os.fdopen(descriptors[0], "rb") as file:
            file.seek(0)
            _decode(json.loads(message), file, files)


def _decode(request: dict[str, Any], file: IO[bytes], answer: socket.socket) -> None:
    from tutti_server.app.media import file_decoder

    _grant_cpu_time()
    try:
        if request["wanted"] == "tracks":
            _send(answer, Kind.ANSWER, json.dumps(file_decoder.languages_of_tracks(file)).encode())
            return
        if request["wanted"] == "n_channels":
            _send(answer, Kind.ANSWER, json.dumps(file_decoder.n_channels(file, request["track"])).encode())
            return

        def on_notice(notice: Notice) -> None:
            _send(answer, Kind.NOTICE, json.dumps(asdict(notice)).encode())

        for piece in file_decoder.decode_pieces(file, request["channels"], on_notice, request["track"]):
            _send(answer, Kind.SAMPLES, piece.tobytes())
            _grant_cpu_time()
        _send(answer, Kind.DONE)
    except MediaError as error:
        _send(answer, Kind.ERROR, str(error).encode())
    except MemoryError:
        _send(answer, Kind.ERROR, f"file: expected one that is decoded in {MAX_MEMORY_MB} MB of memory".encode())


def _send(answer: socket.socket, kind: Kind, content: bytes = b"") -> None:
    answer.sendall(HEADER.pack(kind, len(content)))
    answer.sendall(content)


def _limit_memory() -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = taken + (MAX_MEMORY_MB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # It writes no file, not even its own memory when it crashes.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _grant_cpu_time() -> None:
    """Let this process go on for `MAX_CPU_S`; then the system kills it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(usage.ru_utime + usage.ru_stime) + MAX_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def main() -> NoReturn:
    """Serve the socket that the command line names."""
    # These reach the service, which ends this process.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    # Before the workers are forked, so that they share it. The service imports this module too, and does not need it.
    importlib.import_module("tutti_server.app.media.file_decoder")
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)


if __name__ == "__main__":
    main()
