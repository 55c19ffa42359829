"""The protocols that clients speak, one folder for each. No dialect imports another.

An `endpoint` module serves requests and sockets. All other modules translate, and do no I/O.
"""
