"""Opens the standard streams that a command was started without, as by `>&-`."""

import os
import sys
from pathlib import Path


def open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed.

    Else the next file or socket would have its number, and the event loop would abort the process.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It has the lowest free number, which is that of the stream.
            stream = Path(os.devnull).open(mode)  # noqa: SIM115  # it stays open
            # For the processes of gateways and engines.
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
