"""Documents of the monitoring endpoints, for the monitoring port and the system account's requests."""
