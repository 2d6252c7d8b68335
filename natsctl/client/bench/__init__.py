"""Measuring a server by loading it: what is sent, by whom, and what came of it."""
