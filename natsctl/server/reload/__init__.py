"""A changed configuration on a running server."""
