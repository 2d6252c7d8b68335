"""A plan carried out: what each change sends, in which order, and what became of it."""

CONCURRENCY = 16
"""Changes under way at once, unless the command says otherwise."""
