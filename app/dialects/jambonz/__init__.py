"""jambonz, which dials a WebSocket for speech recognition, and takes text as the answer."""
