/** The part of a WebSocket that a session uses. Browsers, Node 22 and the package `ws` have it. */
export {};
