"""Services of the micro protocol."""
