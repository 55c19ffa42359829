"""What readers of a room fetch: a page, server-sent events, WebVTT and HLS. See docs/rooms.md."""
