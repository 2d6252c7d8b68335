"""The NATS client protocol without I/O: bytes in, operations out, and back."""
