"""The edge of the service: what a connection must do, and in which time, before an endpoint serves it."""
