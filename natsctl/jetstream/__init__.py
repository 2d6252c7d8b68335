"""JetStream without I/O: streams, consumers, and the API in front of them."""
