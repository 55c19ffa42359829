"""Limits that several dialects share. They bound what one client can make the server keep or send."""

from tutti import messages

MAX_TEXT_CHARS = 65_536
"""The longest text message, in characters, of dialects that send audio in binary messages or in small pieces."""

MAX_NOTICES = 20
"""The server names at most this many problems of one message, whatever the client sends."""

MAX_NAME_CHARS = 80
"""The server repeats at most this many characters of a name that the client chose."""

# Limits of the native protocol, which the other dialects have as well.
MAX_PROMPT_CHARS = messages.MAX_PROMPT_CHARS
MIN_SILENCE_MS, MAX_SILENCE_MS = messages.MIN_SILENCE_MS, messages.MAX_SILENCE_MS
MAX_PADDING_MS = messages.MAX_PADDING_MS
MAX_SPEAKERS = messages.MAX_SPEAKERS
