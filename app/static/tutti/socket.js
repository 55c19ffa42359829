/** The little of a WebSocket that a session needs: browsers, Node 22 and the `ws` package all have it. */
export {};
