"""The protocol of voice satellites, which Home Assistant speaks."""
