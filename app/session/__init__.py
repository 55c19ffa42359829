"""The core: one client's session without I/O, counted in samples.

`engine_driver.py` is the one exception: it is the shell that performs the session's effects, with asyncio.
"""
