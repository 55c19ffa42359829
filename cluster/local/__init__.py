"""One engine in a process of its own and the gateways that share it: what travels between them, who keeps them alive.

Knows the boundary of the engine, `engine/api.py`, and nothing of sessions or models.
"""
