"""WebSocket: the protocol without I/O, and connections of clients over it."""
