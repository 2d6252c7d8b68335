"""Core NATS without I/O: accounts, subject routing and client sessions."""
