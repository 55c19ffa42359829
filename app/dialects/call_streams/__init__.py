"""What the streams of telephone systems have in common: a call, its options, and the sink that passes on its events."""
