"""Benchmarks. A module at the top of this folder is a command or is shared by several commands; see docs/results/."""
