"""What the endpoints of one server share: settings, keys, limits, metrics, errors over HTTP."""
