"""Parts of the service that only some need. Each is a plug-in: see `app/server/plugins.py`."""
