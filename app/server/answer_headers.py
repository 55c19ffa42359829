"""The headers that every answer has, so that a browser does with it only what is meant."""

PAGE_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect", "manifest", "worker")),
        # The page finds out how long a file is before it uploads it.
        "media-src blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The content security policy of every page: nothing inline, and nothing from or to other servers. Other answers run
nothing, so it costs them nothing.
"""
ANSWER_HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
