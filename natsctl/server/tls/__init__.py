"""TLS of the server: contexts, certificates, and connections that begin with a handshake."""
