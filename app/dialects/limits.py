"""Limits that several dialects share. They bound what one client can make the server keep or send."""

MAX_TEXT_CHARS = 65_536
"""The longest text message, in characters, of dialects that send audio in binary messages or in small pieces."""

MAX_PROMPT_CHARS = 10_000
"""The longest prompt, in characters."""

MAX_NOTICES = 20
"""The server names at most this many problems of one message, whatever the client sends."""

MAX_NAME_CHARS = 80
"""The server repeats at most this many characters of a name that the client chose."""

MIN_SILENCE_MS, MAX_SILENCE_MS = 100, 5000
"""How short and how long the silence may be that ends an utterance, in milliseconds."""

MAX_PADDING_MS = 1000
"""The most audio before detected speech that an utterance may include, in milliseconds."""
MAX_SPEAKERS = 10
"""The most speakers of a channel, also where the client names no number."""
