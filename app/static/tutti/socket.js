/** The part of a WebSocket that a session uses. Browsers, React Native, Node 22 and the package `ws` have it. */
export {};
