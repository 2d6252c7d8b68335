"""Plans applied to accounts: the requests of each change, their order and their results."""

CONCURRENCY = 16
"""Changes under way concurrently, unless the command gives another number."""
