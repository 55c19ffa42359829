"""Rules that change text before it leaves the server: numerals, redaction, replacements, profanity. No I/O.

A rule finds what it changes in a text (`edits.py`), and says from where on more text could change that; `pipeline.py`
puts the rules together, and `app/session/observers/ruled_text.py` applies them to the events of a session, whose text
comes piece by piece.
"""
