"""A plan carried out: what each change sends, in which order, and what became of it."""

CONCURRENCY = 16
"""Changes under way concurrently, unless the command gives another number."""
