"""The protocols that clients speak, a folder for each. No dialect knows another.

`wire` modules translate and do no I/O; `endpoint` modules serve.
"""
