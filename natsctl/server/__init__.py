"""The asyncio shell around the cores: listeners, group commit, the process and the embedded server."""
