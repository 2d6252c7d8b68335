"""The log of the server: its lines, syslog, and the trace of the protocol."""
