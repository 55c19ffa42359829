"""Benchmarks. A module at the top of this folder is a command or is shared by several commands; see docs/results/.

`live` and `offline` measure the speed of the service and of its engine, `accuracy` measures their word errors, and
`asr` measures both for any OpenAI-compatible endpoint.
"""
