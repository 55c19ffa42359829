"""An engine that is somewhere else: in another process of this host."""
