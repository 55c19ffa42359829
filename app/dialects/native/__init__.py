"""tutti's own protocol, `tutti.v1`: docs/protocol.md."""
