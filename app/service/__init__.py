"""What all endpoints of a server share: settings, API keys, admission, metrics, HTTP errors."""
