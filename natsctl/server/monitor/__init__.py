"""What the monitoring port and the system account's requests answer: one file per endpoint."""
