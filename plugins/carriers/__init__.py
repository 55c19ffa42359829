"""Telephone systems that stream their calls to the service. Twilio is in `app/dialects`, as the one to copy."""
