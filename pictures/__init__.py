"""The pictures of the README and the documentation, each made by a command from what the program really shows.

`demo` records the terminal, `page` takes a screenshot of the captions page, and `chart` draws measured figures.
"""
