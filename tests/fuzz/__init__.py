"""Damaged input of every kind that anyone can send: recordings, messages, frames and requests.

The tests of this folder take seconds. `python -m tests.fuzz --minutes 60` goes on with other input for as long as it is
given, and prints the smallest input that it has found to break something.
"""
