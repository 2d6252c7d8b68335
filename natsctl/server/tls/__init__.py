"""TLS of every listener: contexts, handshakes, certificates."""
