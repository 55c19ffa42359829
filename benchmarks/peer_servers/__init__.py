"""Programs that start the peers of `benchmarks.live_peers`, each run in the environment that `peers.sh` made for it.

They import nothing of this repository, and change what a peer does only where it knows no checkpoints but OpenAI's.
"""
