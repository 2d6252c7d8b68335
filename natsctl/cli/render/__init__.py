"""Presentation of what commands show: pure functions from the contract's models to text, pages and tables."""
