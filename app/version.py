"""The version of the installed distribution. One place, so that the command line and the protocols say the same."""

from importlib.metadata import version

VERSION = version("tutti-asr")
