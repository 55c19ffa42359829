"""State that gateways and machines share: one interface, in this process or in Redis."""
