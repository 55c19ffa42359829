"""The headers that every answer has, so that a browser does with it only what is meant."""

ANSWER_HEADERS = {
    "content-security-policy": "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""The content security policy is the page's. Other answers run nothing, so it costs them nothing."""
