"""Programs that start the peers of `benchmarks.live_peers` and `benchmarks.real_speech`, each in its own environment.

They import nothing else of this repository. They change a peer only where it supports no checkpoints but OpenAI's.
"""
