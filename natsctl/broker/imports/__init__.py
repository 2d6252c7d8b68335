"""Exports and imports between accounts, their responses, and subject mappings."""
