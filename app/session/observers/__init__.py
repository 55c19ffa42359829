"""Watch the events of a session and add to them: speakers, rules of text."""
