"""Runs the command `python -m benchmarks.live`."""

from benchmarks.live.streams import main

if __name__ == "__main__":
    main()
