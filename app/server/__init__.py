"""Says what is served where, and how a connection gets there: routes, OpenAPI, limits before it is admitted."""
