"""The start of a session that a call gives where it names no silence: the service chooses when utterances end."""

from functools import partial

from tutti_server.app.session.messages import commands

call_start = partial(commands.Start, endpointing=commands.Endpointing(mode=None))
