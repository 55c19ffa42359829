"""What the streams of telephone systems have in common: a call, its options, and the line that passes on its events."""
