"""Events on their way out of the service: to a socket, to a call's subscribers, to a webhook."""
