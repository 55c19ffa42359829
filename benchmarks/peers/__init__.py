"""Other live and offline engines, and how they are started and spoken to."""
