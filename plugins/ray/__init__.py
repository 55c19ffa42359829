"""Engines and gateways as replicas of a Ray Serve application, over any number of machines.

Serve starts, watches, scales and drains them. A gateway is our ASGI application behind Serve's proxies; its
`RayTranscriber` gives windows to the engines of all nodes, its own node's first. `application.py` builds the whole.
"""
