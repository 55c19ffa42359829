"""Programs that start the peers of `benchmarks.live_peers`, each in the environment that `peers.sh` made for it.

They import nothing else of this repository. They change a peer only where it supports no checkpoints but OpenAI's.
"""
