"""Measurements, each a program: see docs/results.md.

`live` and `offline` say how fast the service and its engine are, `accuracy` how well they hear; `asr` says both of any
endpoint.
"""
