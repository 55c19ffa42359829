"""The server under its one import name: `tutti_server.app`, `.cluster`, `.engine` and `.plugins`.

In a checkout these are links to the folders at the top of the repository; a wheel has the folders themselves here.
"""
