"""Makes the standard streams usable, whatever a command was started with."""

import io
import os
import sys
from pathlib import Path


def prepare_standard_streams() -> None:
    """Open the null device for each stream that is closed, as by `>&-`. Write what the output's encoding lacks as `?`.

    Else the next file or socket would have the number of a closed one, and the event loop would abort the process.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # A new file gets the lowest free descriptor, which the closed stream had.
            stream = Path(os.devnull).open(mode)  # noqa: SIM115  # it stays open
            # For the processes of gateways and engines.
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
