"""Questions to a person at a terminal: each returns a value and sends nothing."""
